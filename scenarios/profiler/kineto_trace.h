#pragma once

#include <cstdint>
#include <map>
#include <optional>
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
  int64_t bytes = -1;   // of the tensor that Gloo has; -1: the trace does not say
  TraceInterval time;   // of the kernel on the GPU, or of Gloo's thread
};

// What a training's own thread does, as far as it tells of parameters and their gradients.
enum class TrainingEvent {
  node,      // of the graph of a backward, but for gradients
  gradient,  // is there: AccumulateGrad
  launch,    // of an all-reduce
  forward,   // of DistributedDataParallel
  update     // step() of an optimizer
};
struct TraceTraining {
  TrainingEvent event{};
  TraceInterval time;
  int64_t thread = 0;     // counted from 0 in the order of their first events
  int64_t sequence = -1;  // of a node: later nodes of a forward have higher ones
  std::optional<std::vector<int64_t>> shape;  // of a gradient; none: the trace does not say
  std::string dtype;                          // "float32"; empty: none that is known
  bool defined = false;  // of a gradient: it is a tensor, as far as the trace says what is
};

// A kernel or a copy on a GPU, but for communication, and when it and all that was launched before
// it have ended.
struct TraceDeviceWork {
  double launched_us = 0, done_us = 0;
};

struct KinetoTrace {
  int64_t rank = -1;
  std::string file;
  int64_t world_size = 0;                             // 0: the trace does not say
  double begin_us = 0;                                // of its first event, since 1970
  double base_us = 0;                                 // of the trace's clock, likewise
  bool on_gpu = false;                                // intervals are those of kernels
  std::vector<TraceInterval> steps;                   // that ProfilerStep# marks, by begin
  std::map<std::string, std::string> groups;          // descriptions by name
  std::vector<TraceInterval> compute, communication;  // may overlap
  std::vector<TraceCall> calls;                       // by begin
  std::vector<TraceTraining> training;                // by begin
  std::vector<TraceDeviceWork> device_work;           // by launch
};

// Is this the beginning of such a file? Of an unpacked one.
bool is_kineto_head(std::string_view head);
// The same of a file, packed by gzip or not.
bool is_kineto_trace(const std::string& path);

// One file, packed by gzip or not, as a stream: memory grows with the events kept. The rank is that
// of distributedInfo, else -1. On a GPU computing are kernels
// whose names do not begin with nccl, rccl, Memcpy or Memset; of a trace of several steps those
// count that it saw launched, until the last step ended. On a CPU computing are operators of
// threads that are not Gloo's. Bad input: no such trace, with the place; one that unpacks to more
// than 2 GiB.
Expected<KinetoTrace> read_kineto_trace(const std::string& path);
// Of the content of such a file.
Expected<KinetoTrace> kineto_trace_of(const std::string& bytes, const std::string& path);

}  // namespace lockstep
