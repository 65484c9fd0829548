// Command rendezvous meets the other members of a gang as torchrun does: rank 0 listens at MASTER_ADDR:MASTER_PORT, all
// others connect there and tell their ranks, and each gets the address of all. It knows only what the environment says.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// patience bounds how long the members wait for each other.
const patience = 30 * time.Second

func main() {
	if err := meet(); err != nil {
		fmt.Fprintln(os.Stderr, "rendezvous:", err)
		os.Exit(1)
	}
}

func meet() error {
	for ours, theirs := range map[string]string{
		"NNODES": "PET_NNODES", "NODE_RANK": "PET_NODE_RANK", "MASTER_ADDR": "PET_MASTER_ADDR", "MASTER_PORT": "PET_MASTER_PORT", "MUSTER_NUM_NODES": "NNODES", "MUSTER_NODE_RANK": "NODE_RANK",
	} {
		if os.Getenv(ours) != os.Getenv(theirs) || os.Getenv(ours) == "" {
			return fmt.Errorf("%s=%q and %s=%q", ours, os.Getenv(ours), theirs, os.Getenv(theirs))
		}
	}
	world, err1 := strconv.Atoi(os.Getenv("NNODES"))
	rank, err2 := strconv.Atoi(os.Getenv("NODE_RANK"))
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	master := net.JoinHostPort(os.Getenv("MASTER_ADDR"), os.Getenv("MASTER_PORT"))
	var met string
	var err error
	if rank == 0 {
		met, err = gather(master, world)
	} else {
		met, err = join(master, rank)
	}
	if err != nil {
		return err
	}
	fmt.Printf("world %d, rank %d, processes %s: %s", world, rank, os.Getenv("PET_NPROC_PER_NODE"), met)
	return nil
}

// gather waits for the others, and tells each the addresses of all by rank.
func gather(at string, world int) (string, error) {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return "", err
	}
	defer l.Close()
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	addresses := make([]string, world)
	addresses[0] = os.Getenv("MASTER_ADDR")
	var conns []net.Conn
	for range world - 1 {
		c, err := l.Accept()
		if err != nil {
			return "", err
		}
		defer c.Close()
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil {
			return "", err
		}
		rank, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil || rank < 1 || rank >= world || addresses[rank] != "" {
			return "", fmt.Errorf("rank %q came, or came twice", line)
		}
		addresses[rank], _, _ = net.SplitHostPort(c.RemoteAddr().String())
		conns = append(conns, c)
	}
	met := strings.Join(addresses, " ") + "\n"
	for _, c := range conns {
		if _, err := c.Write([]byte(met)); err != nil {
			return "", err
		}
	}
	return met, nil
}

// join connects to rank 0. As rank 0 may start a little later, it tries again.
func join(at string, rank int) (string, error) {
	until := time.Now().Add(patience)
	for {
		c, err := net.DialTimeout("tcp", at, patience)
		if err != nil && time.Now().Before(until) {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		if err != nil {
			return "", err
		}
		defer c.Close()
		fmt.Fprintln(c, rank)
		return bufio.NewReader(c).ReadString('\n')
	}
}
