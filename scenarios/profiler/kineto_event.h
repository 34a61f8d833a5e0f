#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/profiler/kineto_trace.h"

namespace lockstep::kineto {

// What an event says; of args what matters here.
struct ProfilerEvent {
  std::string phase, category, name;
  std::optional<double> begin_us, duration_us, stream, correlation;
  std::string thread;
  std::string collective, group, description, dtype, elements_in, elements_out, splits;
  std::optional<double> sequence, node;
  // Of its first input: record_shapes.
  std::optional<std::vector<int64_t>> shape;
  std::string type;
  size_t shapes = 0, types = 0;  // of how many inputs
};

// "float32" of what ATen's profiler calls float; empty: none that a gradient has.
std::string dtype_of(const std::string& type);
// Of the event's first input; -1: not known.
int64_t bytes_of_input(const ProfilerEvent& event);

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words);

// By its name.
bool is_communication(const std::string& name);
enum class Activity { none, compute, communication, step };
Activity activity_on_gpu(const ProfilerEvent& event);
Activity activity_on_cpu(const ProfilerEvent& event);
std::optional<TrainingEvent> training_event(const ProfilerEvent& event);

// In the words of torch.distributed: "all_reduce".
std::string operation_of(const std::string& name);

}  // namespace lockstep::kineto
