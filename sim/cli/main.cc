#include "sim/cli/cli.h"

int main(int argc, char** argv) { return lockstep::run_cli(argc, argv); }
