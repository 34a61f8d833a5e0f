#pragma once

#include <optional>
#include <ostream>

#include "sim/report/trace/traced_run.h"

namespace lockstep {

// A timeline in Chrome's trace event format with Kineto's names, for Perfetto, chrome://tracing and
// HolisticTraceAnalysis (HTA): a process for each rank, with tracks for steps and phases, compute
// and communication, an arrow from a bucket that is complete to its collective, and marks where
// faults and mutants acted. Times are microseconds since the run's first event.
//
// A collective is called as its backend calls it: "gloo:all_reduce" of category "communication";
// over NCCL "ncclKernel_AllReduce", a kernel. For HTA all are that: it knows communication by
// "nccl...Kernel" alone. Then forward and backward are kernels of stream 7, collectives kernels of
// streams from 20 on, each with its launch, and steps are called ProfilerStep#N. Only steps that
// metrics are made of are so; the others are drawn, but are no kernels, so that HTA's overlap is
// ours.
enum class KinetoNames { own, hta };

// `only`: that rank; else all of them.
void write_kineto(std::ostream& out, const TracedRun& run, KinetoNames names,
                  std::optional<size_t> only);

}  // namespace lockstep
