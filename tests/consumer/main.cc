#include "sim/main/lockstep_main.h"

int main(int argc, char** argv) { return lockstep::main(argc, argv); }
