#include "sim/program/program.h"

int main(int argc, char** argv) { return lockstep::run_cli(argc, argv); }
