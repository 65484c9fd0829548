// Package view has the data structures with which a daemon caches the state of its cluster. They know neither HTTP nor
// the types of the API's documents. Log keeps the newest version of each object in the order of changes, Shelf the jobs
// of one member within bounds, Ring the latest events. Packer compresses their texts.
package view
