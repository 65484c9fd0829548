package pidspace

// machine is the architecture in an ELF file.
const machine = 183
