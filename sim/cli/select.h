#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/cli/verbs.h"
#include "sim/join/environment.h"
#include "sim/report/document.h"

namespace lockstep {

// What narrows a selection further: a part of it for each of several machines, or what failed last.

// "2/5". Bad input: another form, i < 1, i > n, n > 4096.
// auto: launched_shard() of this process.
Expected<Shard> parse_shard(const std::string& text);
// The part that a launcher's variables say: of a Slurm array, its tasks (srun, mpirun, torchrun),
// or the tasks of each of an array. Bad input where there is neither, or they contradict each
// other.
Expected<Shard> launched_shard(const Variables& variables);

// Leaves the runs of one shard. Every run is in exactly one of the n shards of a selection,
// whatever machine asks; their sizes differ by one run at most. Neighbours on an axis go to
// different shards.
void keep_shard(const Shard& shard, std::vector<SelectedFile>* files);

int64_t count_runs(const std::vector<SelectedFile>& files);

// last_failed.json in the first folder for states (run_directory.h) that can be used: the runs of
// verify and run that have not done what was expected, until they do.

// Leaves the runs that failed when they were run last, and returns them as people read them:
// "toy_model world_size=3".
std::vector<std::string> keep_last_failed(std::vector<SelectedFile>* files);

// Adds the runs of `document` that failed or were inconclusive, takes those away that are as
// expected now. Where no folder can be used nothing is noted.
void note_last_failed(const ResultDocument& document) noexcept;

}  // namespace lockstep
