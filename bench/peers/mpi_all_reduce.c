/* One all-reduce (sum of floats, in place) alone over MPI, as bench/all_reduce.cc measures ours:
     mpirun -n WORLD_SIZE mpi_all_reduce KIB [ROUNDS]
   prints the median of rank 0's times in milliseconds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kWarmUp = 5 };

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const long kib = argc > 1 ? atol(argv[1]) : 1024;
  const int rounds = argc > 2 ? atoi(argv[2]) : 60;
  if (kib < 1 || kib > 1 << 20 || rounds < 1) {
    if (rank == 0) fprintf(stderr, "usage: mpi_all_reduce KIB [ROUNDS], 1 <= KIB <= 1048576\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const int count = (int)(kib * 256);
  float* values = malloc(sizeof(float) * (size_t)count);
  double* times = malloc(sizeof(double) * (size_t)rounds);
  if (values == NULL || times == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  for (int round = 0; round < rounds + kWarmUp; ++round) {
    for (int i = 0; i < count; ++i) values[i] = 1;
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (round >= kWarmUp) times[round - kWarmUp] = (MPI_Wtime() - start) * 1e3;
    if (values[count - 1] != (float)ranks) MPI_Abort(MPI_COMM_WORLD, 1);
  }
  qsort(times, (size_t)rounds, sizeof(double), compare);
  if (rank == 0) printf("open_mpi W=%d KiB=%ld open_mpi_ms=%.3f\n", ranks, kib, times[rounds / 2]);
  free(times);
  free(values);
  MPI_Finalize();
  return 0;
}
