package manual

// What the tables of the program do not say: selectors, exit codes, and the variables of a task.

import "github.com/musterhq/muster/job"

// selectors returns how arguments name jobs and tasks.
func selectors() []item {
	return []item{
		{"ID", "A job, by its id or by the beginning of it, if only one job has it."},
		{"NAME", "A job, by its name, if only one job has it, and no other job's ID begins so."},
		{"last", "The job that you submitted last."},
		{"all", "All your jobs that have not ended."},
		{"ID.3, ID.0-9,12, NAME.3", "Tasks of a job, by the index in the array or by the rank in the gang."},
		{"ID.3.1", "In an array of gangs: index 3, rank 1."},
	}
}

// exitCodes returns the exit codes of the program.
func exitCodes() []item {
	return []item{
		{"0", "Done."},
		{"1", "It failed."},
		{"2", "The command line, the job file or the configuration is wrong. Nothing was done."},
		{"3", "`submit`: nothing in the cluster could ever run the job, or a limit never lets it start. Where nodes stand against it, `--hold` has it accepted."},
		{"N", "`run`, `wait`, `submit -W` and `submit -f`: the exit code of the job; of several tasks the highest, of cancelled ones only if none has failed."},
		{"124", "The time limit ended the job."},
		{"125", "muster or the node failed, not the program. One line on stderr says why."},
		{"126, 127", "The program could not be executed, or was not found."},
		{"128+N", "Signal N ended the program."},
		{"130", "You interrupted the verb with Ctrl-C. A job goes on."},
	}
}

// variables returns the variables of a task.
func variables() []item {
	return append([]item{
		{"MUSTER_JOB_ID, MUSTER_JOB_NAME", "Id and name of the job."},
		{"MUSTER_TASK", "Number of the task: its index in the array, or its rank in the gang."},
		{"MUSTER_ATTEMPT", "Number of the attempt, from 1 on."},
		{"MUSTER_EPOCH", "Grows with each new attempt and each new owner of the job. A store that accepts only the highest one is safe from attempts that were given up."},
		{"MUSTER_SCRATCH", "A new directory for the task, which is removed after its end. Without `--workdir` it is the working directory."},
		{"MUSTER_ARRAY_INDEX", "Index in the array. Only tasks of arrays have it."},
		{"MUSTER_ENTRY", "The line of `--each-line`; empty in other arrays. Only tasks of arrays have it."},
		{"MUSTER_PARAM_K", "The parameter K, in upper case."},
		{"MUSTER_PREEMPTED", "1 if an earlier attempt had to make room."},
		{"MUSTER_NODE_RANK, MUSTER_NUM_NODES", "Rank of the task, and number of the nodes of the gang; 0 and 1 without one."},
		{"MUSTER_NODE_IPS", "IP addresses of the nodes, one a line, by rank."},
		{"MUSTER_HOSTFILE", "A file with a line `IP slots=N` for each node, for mpirun."},
		{"MUSTER_GPUS_PER_NODE", "Number of GPUs of the task."},
		{"CUDA_VISIBLE_DEVICES, NVIDIA_VISIBLE_DEVICES", "UUIDs of its GPUs; empty for a task without GPUs."},
		{"CUDA_DEVICE_ORDER", "PCI_BUS_ID."},
		{"MASTER_ADDR, MASTER_PORT, NNODES, NODE_RANK", "Where the members of a gang meet. Only gangs have them."},
		{"PET_NNODES, PET_NODE_RANK, PET_NPROC_PER_NODE, PET_MASTER_ADDR, PET_MASTER_PORT", "The same, as torchrun reads it: `torchrun train.py` needs no flags. Only gangs have them."},
		{"PATH, HOME, USER, LANG", "As the daemon has them; HOME and USER are those of the task's user. In a container PATH and LANG are those of the image, HOME is the scratch directory unless `--env` sets it, and USER is the user who submitted."},
	}, slurmVariables()...)
}

func slurmVariables() []item {
	return []item{{"SLURM_*", "For scripts with #SBATCH lines: those that say the same as ours. `--no-slurm-env` leaves them out. They are " + join(job.SlurmNames()) + "."}}
}

func join(words []string) (text string) {
	for i, w := range words {
		switch {
		case i == 0:
		case i == len(words)-1:
			text += " and "
		default:
			text += ", "
		}
		text += w
	}
	return text
}
