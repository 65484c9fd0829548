#!/bin/sh
# MPI: rank 0 starts the processes on all nodes, as the host file says.
# Run it with: muster run -N 2 --ntasks-per-node 4 --upload mpi.sh -- sh mpi.sh
# The nodes need Open MPI, and ssh between them for the user.

if [ "$MUSTER_NODE_RANK" -ne 0 ]; then
  exit 0 # mpirun reaches this node by ssh
fi
cat "$MUSTER_HOSTFILE"
exec mpirun --hostfile "$MUSTER_HOSTFILE" hostname
