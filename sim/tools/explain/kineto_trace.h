#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/base/error.h"

namespace lockstep {

// What torch.profiler kept of one rank (export_chrome_trace, tensorboard_trace_handler), typed.

// On the trace's own clock.
struct TraceInterval {
  double begin_us = 0, end_us = 0;
};

struct TraceCall {
  std::string group;  // its name; "unnamed" where the trace does not say and has several
  std::string operation;
  std::string sizes, dtypes;  // to be compared
  int64_t sequence = -1;      // within its group; -1 where the trace does not say
  bool point_to_point = false;
  int64_t launch = -1;  // of a kernel: number that its launch bears, too; -1: none
  TraceInterval time;   // of the kernel on the GPU, or of Gloo's thread
};

struct KinetoTrace {
  int64_t rank = -1;
  std::string file;
  int64_t world_size = 0;                             // 0: the trace does not say
  double begin_us = 0;                                // of its first event, since 1970
  bool on_gpu = false;                                // intervals are those of kernels
  std::vector<TraceInterval> steps;                   // that ProfilerStep# marks, by begin
  std::map<std::string, std::string> groups;          // descriptions by name
  std::vector<TraceInterval> compute, communication;  // may overlap
  std::vector<TraceCall> calls;                       // by begin
};

// Is this the beginning of such a file? Of an unpacked one.
bool is_kineto_head(std::string_view head);
// The same of a file that gzip packed.
bool is_packed_kineto(const std::string& path);

// One file, packed by gzip or not, as a stream: memory grows with the events kept. The rank is that
// of distributedInfo, else the number in the file's name, else -1. On a GPU computing are kernels
// whose names do not begin with nccl, rccl, Memcpy or Memset; of a trace of several steps those
// count that it saw launched, until the last step ended. On a CPU computing are operators of
// threads that are not Gloo's. Bad input: no such trace, with the place; one that unpacks to more
// than 2 GiB.
Expected<KinetoTrace> read_kineto_trace(const std::string& path);
// Of the content of such a file.
Expected<KinetoTrace> kineto_trace_of(const std::string& bytes, const std::string& path);

}  // namespace lockstep
