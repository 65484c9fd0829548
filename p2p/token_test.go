package p2p

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	"pgregory.net/rapid"
)

func TestTokenTextShowsAWrongCharacter(t *testing.T) {
	c := generations(t, key(t), 1)[0].cred
	s, err := newSecret()
	if err != nil {
		t.Fatal(err)
	}
	want := token{cluster: c.cluster, issuer: c.id, roles: RoleWorker | RoleInviter, secret: s}
	got, err := parseToken("  " + want.String() + "\n")
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	// A single wrong character is detected without asking the issuer.
	text := want.String()
	for i := len(tokenPrefix); i < len(text); i++ {
		b := []byte(text)
		if b[i] = 'a'; text[i] == 'a' {
			b[i] = 'b'
		}
		if _, err := parseToken(string(b)); !errors.Is(err, ErrBadToken) {
			t.Fatalf("character %d changed: got %v, want ErrBadToken", i, err)
		}
	}
}

func FuzzParseToken(f *testing.F) {
	c := generations(f, key(f), 1)[0].cred
	f.Add(token{cluster: c.cluster, issuer: c.id, roles: AllRoles}.String())
	f.Add("muster1-")
	f.Fuzz(func(t *testing.T, text string) {
		tok, err := parseToken(text)
		if err != nil {
			return
		}
		if again, err := parseToken(tok.String()); err != nil || again != tok {
			t.Fatalf("got %+v, then %+v, %v, want the same twice", tok, again, err)
		}
	})
}

// TestInviteAdmitsNoMoreThanItsUses uses a token in random order, with restarts in between. It admits at most as many
// peers as it has uses. Each of them may repeat its request. It admits nobody after it has expired.
func TestInviteAdmitsNoMoreThanItsUses(t *testing.T) {
	dir := disk{t.TempDir()}
	rapid.Check(t, func(rt *rapid.T) {
		v := &invites{disk: dir}
		cluster := clusterID{1}
		if err := v.open(cluster); err != nil {
			rt.Fatal(err)
		}
		now := time.Unix(1e9, 0)
		if err := v.saveLocked(nil); err != nil {
			rt.Fatal(err)
		}
		uses := rapid.IntRange(1, 4).Draw(rt, "uses")
		end := now.Add(time.Hour)
		s := secret{byte(uses)}
		if err := v.add(s, invite{Roles: RoleWorker, Left: uses, Expires: end}, now); err != nil {
			rt.Fatal(err)
		}
		in := map[string]bool{}
		rt.Repeat(map[string]func(*rapid.T){
			"ask": func(rt *rapid.T) {
				who := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(rt, "who")
				roles, _, err := v.use(s, who, now)
				switch {
				case !now.Before(end):
					if !errors.Is(err, ErrTokenExpired) {
						rt.Fatalf("after the end: got %v, want ErrTokenExpired", err)
					}
				case in[who] || len(in) < uses:
					if err != nil || roles != RoleWorker {
						rt.Fatalf("%s with %d of %d uses: got %v, want a worker", who, len(in), uses, err)
					}
					in[who] = true
				case !errors.Is(err, ErrTokenUsed):
					rt.Fatalf("%s without uses left: got %v, want ErrTokenUsed", who, err)
				}
			},
			"guess": func(rt *rapid.T) {
				if _, _, err := v.use(secret{99}, "a", now); !errors.Is(err, ErrTokenUnknown) {
					rt.Fatal(err)
				}
			},
			"restart": func(rt *rapid.T) {
				v = &invites{disk: dir}
				if err := v.open(cluster); err != nil {
					rt.Fatal(err)
				}
			},
			"wait": func(rt *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(1, 30).Draw(rt, "min")) * time.Minute) },
		})
	})
}

func TestInvitesOfAnotherClusterAreVoid(t *testing.T) {
	v := &invites{disk: disk{t.TempDir()}}
	now := time.Unix(1e9, 0)
	if err := v.open(clusterID{1}); err != nil {
		t.Fatal(err)
	}
	if err := v.add(secret{1}, invite{Roles: AllRoles, Left: 1, Expires: now.Add(time.Hour)}, now); err != nil {
		t.Fatal(err)
	}
	if err := v.open(clusterID{2}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := v.use(secret{1}, "a", now); !errors.Is(err, ErrTokenUnknown) {
		t.Errorf("a token of the former cluster: got %v, want ErrTokenUnknown", err)
	}
	v = &invites{}
	for i := range maxInvites {
		if err := v.add(secret{byte(i), byte(i >> 8)}, invite{Roles: AllRoles, Left: 1, Expires: now.Add(time.Hour)}, now); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := v.add(secret{0, 0, 1}, invite{Roles: AllRoles, Left: 1, Expires: now.Add(time.Hour)}, now); !errors.Is(err, ErrTooManyInvites) {
		t.Errorf("one more than fit: got %v, want ErrTooManyInvites", err)
	}
	if err := v.add(secret{0, 0, 1}, invite{Roles: AllRoles, Left: 1, Expires: now.Add(72 * time.Hour)}, now.Add(48*time.Hour)); err != nil {
		t.Errorf("after the others expired: got %v, want no error", err)
	}
}

func TestErrorsSurviveTheirCodes(t *testing.T) {
	seen := map[code]bool{codeOK: true}
	for _, c := range codes {
		if seen[c.code] {
			t.Errorf("error number %d is used twice", c.code)
		}
		seen[c.code] = true
		if back := codeOf(c.err).toError(); !errors.Is(back, c.err) || !isRefusal(back) {
			t.Errorf("got %[2]v, want %[1]v as a refusal", c.err, back)
		}
	}
	if codeOf(nil).toError() != nil || codeOf(errors.New("disk full")) != codeInternal || !isRefusal(code(9999).toError()) {
		t.Error("want no error for nil, codeInternal for an error without a code, and a refusal for an unknown code")
	}
}

func FuzzParseBook(f *testing.F) {
	f.Add([]byte(`{"schema":"muster.peers/v1","cluster":"x","peers":[{"peer":"12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA","addrs":["/ip4/1.2.3.4/tcp/1"],"roles":["worker"],"last_seen":"2026-01-02T03:04:05Z"}]}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		j, err := parseBook(b)
		if err != nil {
			if !errors.Is(err, errBook) {
				t.Fatal(err)
			}
			return
		}
		for _, c := range j.Peers {
			if c.id.Validate() != nil || len(c.dial) != len(c.Addrs) {
				t.Fatalf("got %+v, want a valid ID, and all addresses", c)
			}
		}
	})
}

func TestPeerBookForgetsTheOldestFirst(t *testing.T) {
	dir := disk{t.TempDir()}
	b := &book{disk: dir}
	b.open(clusterID{1}, slog.New(slog.DiscardHandler))
	begin := time.Unix(1e9, 0)
	var ids []peer.ID
	for i := range maxBook + 3 {
		id := peer.ID("\x00\x05" + string([]byte{1, 2, byte(i), byte(i >> 8), byte(i >> 16)}))
		ids = append(ids, id)
		b.admitted(&Credential{id: id, Roles: RoleWorker}, "n", begin.Add(time.Duration(i)*time.Second))
	}
	if b.size() != maxBook || b.knows(ids[2]) || !b.knows(ids[3]) {
		t.Errorf("got %d members, want %d; knows the oldest: %t, want false", b.size(), maxBook, b.knows(ids[2]))
	}
	b.seen(ids[9], []ma.Multiaddr{ma.StringCast("/ip4/1.2.3.4/tcp/1")}, begin.Add(time.Hour*24))
	if err := b.save(); err != nil {
		t.Fatal(err)
	}
	again := &book{disk: dir}
	again.open(clusterID{1}, slog.New(slog.DiscardHandler))
	if first := again.list()[0]; again.size() != maxBook || first.id != ids[9] || !slices.Equal(first.Addrs, []string{"/ip4/1.2.3.4/tcp/1"}) {
		t.Errorf("read back: got %d members, want %d; first is %+v, want the newest with its address", again.size(), maxBook, again.list()[0])
	}
	if again.open(clusterID{2}, slog.New(slog.DiscardHandler)); again.size() != 0 {
		t.Errorf("got %d members of another cluster, want 0", again.size())
	}
}
