// A small NVIDIA management library for the tests. It has the calls that no driver lacks, and its cards do what files in
// the directory $MUSTER_E2E_GPUS say:
//
//	cards        how many there are
//	init         nvmlInit returns this error
//	N.wake       the first call that touches card N in a process takes this many seconds
//	N.lost       card N is lost, in this process for good
//	N.memory     reading the memory of card N returns this error
//	N.use        its memory in use, in MiB
//	N.processes  a line "PID MIB" for each program that computes on it
//
// Like the real one it has a file open for each card that was touched: open-N, and open-ctl.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nvml.h"

#define MOST 8
#define MIB (1ULL << 20)
#define TOTAL (81920 * MIB)

static int lost[MOST];

static FILE *look(const char *name) {
	char path[512];
	const char *dir = getenv("MUSTER_E2E_GPUS");
	snprintf(path, sizeof path, "%s/%s", dir ? dir : "/nonexistent", name);
	return fopen(path, "r");
}

// number returns the number in a file, or other if there is none.
static long number(const char *name, long other) {
	FILE *f = look(name);
	if (!f) return other;
	if (fscanf(f, "%ld", &other) != 1) other = 1;
	fclose(f);
	return other;
}

static long of(int card, const char *what, long other) {
	char name[64];
	snprintf(name, sizeof name, "%d.%s", card, what);
	return number(name, other);
}

// take opens a file for good, as the driver does with a device.
static void take(const char *name) {
	char path[512];
	const char *dir = getenv("MUSTER_E2E_GPUS");
	snprintf(path, sizeof path, "%s/open-%s", dir ? dir : "/nonexistent", name);
	if (open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) < 0) perror(path);
}

// card returns the index of a device. Only index 0 to MOST-1 exist.
static int card(nvmlDevice_t d) { return (int)((size_t)d.handle - 1); }

static nvmlReturn_t state(int card) {
	if (of(card, "lost", 0)) lost[card] = 1;
	return lost[card] ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

#define ALIVE(d)                          \
	do {                                  \
		nvmlReturn_t r = state(card(d));  \
		if (r != NVML_SUCCESS) return r;  \
	} while (0)

nvmlReturn_t nvmlInit_v2(void) {
	long why = number("init", NVML_SUCCESS);
	if (why == NVML_SUCCESS) take("ctl");
	return why;
}
nvmlReturn_t nvmlShutdown(void) { return NVML_SUCCESS; }
const char *nvmlErrorString(nvmlReturn_t r) {
	static char text[32];
	snprintf(text, sizeof text, "error %d", r);
	return text;
}
nvmlReturn_t nvmlSystemGetDriverVersion(char *to, unsigned n) { snprintf(to, n, "999.1"); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *n) { *n = number("cards", 0); return NVML_SUCCESS; }

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice_t *d) {
	static char awake[MOST], name[8];
	if (i >= MOST || i >= number("cards", 0)) return NVML_ERROR_INVALID_ARGUMENT;
	if (!awake[i]) {
		sleep(of(i, "wake", 0));
		snprintf(name, sizeof name, "%u", i);
		take(name);
		awake[i] = 1;
	}
	d->handle = (void *)(size_t)(i + 1);
	return state(i);
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *to, unsigned n) {
	ALIVE(d);
	snprintf(to, n, "GPU-e2e00000-0000-4000-8000-00000000000%d", card(d));
	return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *to, unsigned n) {
	ALIVE(d);
	snprintf(to, n, "NVIDIA H100 80GB HBM3");
	return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *p) {
	ALIVE(d);
	memset(p, 0, sizeof *p);
	snprintf(p->busId, sizeof p->busId, "00000000:%02X:00.0", card(d) + 1);
	return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t d, unsigned *n) { return NVML_ERROR_NOT_SUPPORTED; }
nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t d, int *major, int *minor) {
	ALIVE(d);
	*major = 9, *minor = 0;
	return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *m) {
	ALIVE(d);
	long why = of(card(d), "memory", NVML_SUCCESS);
	if (why != NVML_SUCCESS) return why;
	m->total = TOTAL;
	m->used = of(card(d), "use", 0) * MIB;
	m->free = m->total - m->used;
	return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t d, unsigned *n, nvmlProcessInfo_t *to) {
	char name[32];
	unsigned most = *n, pid, mib;
	ALIVE(d);
	snprintf(name, sizeof name, "%d.processes", card(d));
	FILE *f = look(name);
	for (*n = 0; f && fscanf(f, "%u %u", &pid, &mib) == 2; ++*n) {
		if (*n >= most) continue;
		memset(&to[*n], 0, sizeof *to);
		to[*n].pid = pid;
		to[*n].usedGpuMemory = mib * MIB;
	}
	if (f) fclose(f);
	return *n > most ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *u) {
	ALIVE(d);
	u->gpu = u->memory = 0;
	return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t d, nvmlTemperatureSensors_t s, unsigned *t) {
	ALIVE(d);
	*t = 30;
	return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t d, unsigned *mw) {
	ALIVE(d);
	*mw = 70000;
	return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t d, nvmlMemoryErrorType_t t, nvmlEccCounterType_t c, unsigned long long *n) {
	ALIVE(d);
	*n = 0;
	return NVML_SUCCESS;
}
