// Package view holds the parts of a daemon's picture of its cluster that know neither HTTP nor documents: the newest
// version of each object in the order of changes, the jobs of one member within bounds, the latest events, and
// the compressed texts of these.
package view
