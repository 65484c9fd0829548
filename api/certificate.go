package api

// The certificate of the TCP listener. It is read again when its files change, because certificates are renewed.

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// lookAgain is the shortest time between two checks of the files.
const lookAgain = time.Second

// certificate is a certificate with its key, from two files.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu     sync.Mutex
	looked time.Time        // guarded by mu
	stamp  string           // guarded by mu: stamps of the files from which now was read
	failed string           // guarded by mu: the last error that was logged
	now    *tls.Certificate // guarded by mu
}

// secureBy returns the TLS configuration; nil if there is no certificate.
func secureBy(certFile, keyFile string, log *slog.Logger) (*tls.Config, error) {
	if certFile == "" {
		return nil, nil //nolint:nilnil // none is not an error
	}
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log}
	stamp, err := c.stamps()
	if err == nil {
		err = c.readLocked(stamp) // it needs no lock: c is not shared yet
	}
	if err != nil {
		return nil, fmt.Errorf("api: http-cert, http-key: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}, nil
}

// get returns the present certificate. If the files have changed and cannot be read, it returns the old certificate and
// logs why.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < lookAgain {
		return c.now, nil
	}
	c.looked = time.Now()
	stamp, err := c.stamps()
	if err == nil && stamp == c.stamp {
		return c.now, nil
	}
	if err == nil {
		err = c.readLocked(stamp)
	}
	switch {
	case err == nil:
		c.failed = ""
		c.log.Info("certificate of http read again", "file", c.certFile, "until", c.now.Leaf.NotAfter)
	case err.Error() != c.failed:
		c.failed = err.Error()
		c.log.Error("certificate of http not read again; the old one stays", "error", err)
	}
	return c.now, nil
}

// stamps returns a text that changes when the files change. It returns an error if all users can read or change the key.
func (c *certificate) stamps() (string, error) {
	var text strings.Builder
	for _, name := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return "", err
		}
		if name == c.keyFile && info.Mode().Perm()&0o007 != 0 {
			return "", fmt.Errorf("%s: all users may read or change the key (mode %04o); run `chmod 600 %s`", name, info.Mode().Perm(), name)
		}
		fmt.Fprintf(&text, "%v %d;", info.ModTime(), info.Size())
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			fmt.Fprint(&text, st.Ino) // a symbolic link may now point to another file of the same size and time
		}
	}
	return text.String(), nil
}

func (c *certificate) readLocked(stamp string) error {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("%s, %s: %w", c.certFile, c.keyFile, err)
	}
	c.now, c.stamp = &pair, stamp
	return nil
}
