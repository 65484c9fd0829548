#!/usr/bin/env python3
"""A gang whose members meet as those of torchrun do, with the standard library alone.

Run it with: muster run --upload gang.py -N 2 --gpus-per-node 1 -- python3 gang.py
With PyTorch: muster run --upload train.py -N 2 --gpus-per-node 8 -- torchrun train.py

torchrun reads the same variables, so it needs no flags.
"""

import os
import socket

world = int(os.environ["PET_NNODES"])
rank = int(os.environ["PET_NODE_RANK"])
master = (os.environ["PET_MASTER_ADDR"], int(os.environ["PET_MASTER_PORT"]))


def lead():
    """Wait for all others, and tell them the sum of the ranks."""
    with socket.create_server(master, reuse_port=True) as server:
        others = []
        total = rank
        while len(others) < world - 1:
            peer, _ = server.accept()
            total += int(peer.makefile().readline())
            others.append(peer)
        for peer in others:
            peer.sendall(f"{total}\n".encode())
            peer.close()
    return total


def follow():
    """Tell the master our rank, and hear the sum."""
    while True:
        try:
            peer = socket.create_connection(master, timeout=60)
            break
        except ConnectionRefusedError:
            pass  # it has not started yet
    with peer:
        peer.sendall(f"{rank}\n".encode())
        return int(peer.makefile().readline())


total = lead() if rank == 0 else follow()
print(f"rank {rank} of {world}: the sum of the ranks is {total}", flush=True)
