package api

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// While the directory service does not answer who has a uid, requests of that uid are answered with "unavailable", and
// not as those of another user. The first answer counts for the connection.
func TestUserOfAnUnknownUIDIsUnavailable(t *testing.T) {
	a, err := newAuthenticator(DefaultConfig(), nil)
	if err != nil {
		t.Fatal(err)
	}
	slow := errors.New("the directory of users does not answer")
	name, asked := "", 0
	a.nameOf = func(uid int) (string, error) {
		asked++
		if uid != 2001 || name == "" {
			return "", slow
		}
		return name, nil
	}
	c := &connection{caller: &caller{uid: 2001}}
	r := httptest.NewRequest("GET", "/v1/jobs", nil)
	r = r.WithContext(context.WithValue(r.Context(), connectionKey{}, c))
	for range 2 {
		who, err := a.identify(fromSocket, r)
		if !errors.Is(err, ErrUnavailable) || !errors.Is(err, slow) || !strings.Contains(err.Error(), "uid 2001") || who.user != "" || who.operator {
			t.Errorf("got %+v, %v, want ErrUnavailable with the uid, and no user", who, err)
		}
	}
	name = "eve"
	for range 2 {
		if who, err := a.identify(fromSocket, r); err != nil || who.user != "eve" || who.uid != 2001 {
			t.Errorf("got %+v, %v, want eve with uid 2001", who, err)
		}
	}
	if asked != 3 {
		t.Errorf("asked %d times, want 3", asked)
	}
	if self, err := NameOf(os.Getuid()); err != nil || self == "" {
		t.Errorf("this user: got %q, %v, want a name", self, err)
	}
	if nobody, err := NameOf(2123456789); err != nil || nobody != "2123456789" {
		t.Errorf("a user without a name: got %q, %v, want its uid", nobody, err)
	}
}
