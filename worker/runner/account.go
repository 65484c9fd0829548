package runner

// As whom a task runs, for those who prepare or read its files.

// Account is the user that a task runs as.
type Account struct {
	UID, GID int
	// Other says that it is another user than this process runs as.
	Other bool

	id identity
}

// AccountOf finds as whom a task of a user runs here, by the rules that the
// runner follows; the error is why it does not run.
func AccountOf(name string, allowRoot bool) (Account, error) {
	return AccountInside(name, "", allowRoot)
}

// AccountInside is AccountOf for a task that is a container; as is that of
// Container.
func AccountInside(name, as string, allowRoot bool) (Account, error) {
	id, err := inside(name, as, allowRoot)
	return Account{UID: id.uid, GID: id.gid, Other: id.cred != nil, id: id}, err
}

// As calls f, which must stay in its goroutine, with the account's rights for
// all that it does with files.
func (a Account) As(f func() error) error { return a.id.as(f) }
