package api

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// newCertificate writes a certificate of 127.0.0.1 with a serial number, and its key. It returns a pool that trusts it.
func newCertificate(t *testing.T, certFile, keyFile string, serial int64) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	as := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, as, as, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, b := range map[string][]byte{certFile: cert, keyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return pool
}

// A renewed certificate is served without a restart. While the files are wrong the old one is served, and the log says
// so once.
func TestRenewedCertificateIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		certFile, keyFile := filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
		newCertificate(t, certFile, keyFile, 1)
		var log bytes.Buffer
		cfg, err := secureBy(certFile, keyFile, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		serves := func(serial int64, lines int) {
			t.Helper()
			for range 3 {
				time.Sleep(lookAgain)
				c, err := cfg.GetCertificate(nil)
				if err != nil || c.Leaf.SerialNumber.Int64() != serial {
					t.Fatalf("got certificate %v, %v, want %d", c.Leaf.SerialNumber, err, serial)
				}
			}
			if n := strings.Count(log.String(), "\n"); n != lines {
				t.Errorf("got %d lines, want %d:\n%s", n, lines, log.String())
			}
		}
		serves(1, 0)
		newCertificate(t, certFile, keyFile, 22) // the files have another length
		serves(22, 1)
		newCertificate(t, certFile, filepath.Join(t.TempDir(), "other"), 333)
		serves(22, 2) // the key belongs to another certificate
		if err := os.Remove(keyFile); err != nil {
			t.Fatal(err)
		}
		serves(22, 3)
		newCertificate(t, certFile, keyFile, 4444)
		serves(4444, 4)
	})
}

func TestInvalidCertificatesAreRefused(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	newCertificate(t, certFile, keyFile, 1)
	if _, err := secureBy(certFile, certFile, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a certificate was accepted as its key")
	}
	if _, err := secureBy(filepath.Join(dir, "none"), keyFile, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "http-cert") {
		t.Errorf("a missing file: got %v, want an error with http-cert", err)
	}
	if err := os.Chmod(keyFile, 0o604); err != nil {
		t.Fatal(err)
	}
	if _, err := secureBy(certFile, keyFile, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that all users can read: got %v, want an error with chmod 600", err)
	}
	for _, cfg := range []Config{{CertFile: certFile}, {KeyFile: keyFile}} {
		cfg.Self, cfg.HTTPUser, cfg.HTTP = "p", "http", "127.0.0.1:0"
		if err := cfg.Validate(); err == nil {
			t.Errorf("accepted %+v, want an error", cfg)
		}
	}
}

// A connection with TLS is counted as any other.
func TestConnectionsWithTLSAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs := newConnections(newPipes(), addressOf, 0, nil)
		near, far := net.Pipe()
		defer near.Close()
		in := cs.enter(far)
		c := tls.Server(in, &tls.Config{})
		cs.changed(c, http.StateActive)
		if in.waits != nil {
			t.Error("a connection with a request counts as one without")
		}
		cs.changed(c, http.StateIdle)
		if in.waits == nil {
			t.Error("a connection without a request counts as one with")
		}
		if got, ok := connContext(t.Context(), c).Value(connectionKey{}).(*connection); !ok || got != in {
			t.Error("requests do not know their connection")
		}
		in.Close()
	})
}
