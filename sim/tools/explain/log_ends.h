#pragma once

#include <string_view>

#include "sim/tools/explain/log_event.h"

namespace lockstep {

// Readers of the lines that say how processes ended, by who writes them.

void read_slurm(std::string_view line, LogEvent* event);
void read_mpirun_signal(std::string_view line, LogEvent* event);
void read_mpirun_exit(std::string_view line, LogEvent* event);
void read_first_told(std::string_view line, LogEvent* event);
void read_mpi_abort(std::string_view line, LogEvent* event);
void read_hydra_end(std::string_view line, LogEvent* event);
void read_spawned(std::string_view line, LogEvent* event);
void read_agent_end(std::string_view line, LogEvent* event);
void read_return_code(std::string_view line, LogEvent* event);
void read_child(std::string_view line, LogEvent* event);
void read_horovod_end(std::string_view line, LogEvent* event);
void read_composer_first(std::string_view line, LogEvent* event);
void read_composer_end(std::string_view line, LogEvent* event);
void read_vllm_worker(std::string_view line, LogEvent* event);
void read_pals_end(std::string_view line, LogEvent* event);
void read_jsrun_end(std::string_view line, LogEvent* event);
void read_mpich_abort(std::string_view line, LogEvent* event);
void read_ray_worker(std::string_view line, LogEvent* event);
void read_signal_words(std::string_view line, LogEvent* event);
void read_signal_name(std::string_view line, LogEvent* event);
void read_killed_command(std::string_view line, LogEvent* event);
void read_caught_signal(std::string_view line, LogEvent* event);
void read_out_of_memory(std::string_view line, LogEvent* event);
void read_killed_container(std::string_view line, LogEvent* event);
void read_killed(std::string_view line, LogEvent* event);

}  // namespace lockstep
