// The machine that a command line of simulate asks for, and how it is told.
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

#include "sim/calibrate/measured_collectives.h"
#include "sim/cli/execution.h"
#include "sim/cli/simulate_jobs.h"
#include "sim/des/cost.h"
#include "sim/des/machine_model.h"

namespace lockstep {
namespace {

// What is wrong with a word, with the option that it was given to.
void append_of(const char* option, const InputErrors& more, InputErrors* errors) {
  for (InputError error : more) {
    error.message = fmt::format("{}: {}", option, error.message);
    errors->push_back(std::move(error));
  }
}

// Whoever mistyped a word is told the words.
InputErrors with_preset_words(const std::string& machine, InputErrors errors) {
  const bool is_word = machine.find_first_of("/.") == std::string::npos;
  if (is_word && errors.size() == 1 && errors.front().line == 0)
    errors.front().allowed = "a file of lockstep calibrate, or " + machine_preset_words();
  return errors;
}

// "collectives measured at 2, 8 ranks"; of other operations than all-reduces by their name.
std::string words_of_tables(const CostModel& cost) {
  if (cost.tables.front().ranks == 0)  // then it is the only one
    return "collectives measured at a number of ranks that its table does not tell, taken for "
           "every one (\"tables\" would)";
  std::string words;
  for (const Operation operation : kMeasuredOperations) {
    const std::string ranks = measured_ranks(cost, operation);
    const bool sums = operation == Operation::all_reduce;
    if (!ranks.empty())
      words += fmt::format("{}{} measured at {} ranks", words.empty() ? "" : ", ",
                           sums ? "collectives" : to_word(operation), ranks);
  }
  return words;
}

// What is known of a machine's errors is not known of one with another network.
void forget_accuracy(const SimulateVerb& verb, MachineModel* machine) {
  if (!machine->accuracy) return;
  const std::pair<bool, const char*> changes[] = {
      {!verb.collectives.empty(), "--collectives"},
      {!verb.algorithm.empty(), "--algorithm"},
      {verb.latency_us.has_value(), "--latency-us"},
      {verb.bandwidth_mb_per_s.has_value(), "--bandwidth-mb-per-s"},
      {verb.across_latency_us.has_value(), "--across-latency-us"},
      {verb.across_bandwidth_mb_per_s.has_value(), "--across-bandwidth-mb-per-s"},
      {verb.ranks_per_host.has_value(), "--ranks-per-host"},
      {verb.channels.has_value(), "--channels"},
      {verb.overlap_slowdown.has_value(), "--overlap-slowdown"},
      {verb.comm_slowdown.has_value(), "--comm-slowdown"}};
  for (const auto& [changed, option] : changes) {
    if (!changed) continue;
    machine->accuracy.reset();
    machine->alternatives.clear();
    machine->why_not_compared = fmt::format(
        "how far the machine's steps are off is not known with {}, with which it was never "
        "compared",
        option);
    return;
  }
}

}  // namespace

Expected<MachineModel> machine_of(const SimulateVerb& verb) {
  MachineModel machine = default_machine_model();
  if (const auto preset = machine_preset(verb.machine)) {
    machine = *preset;
  } else if (!verb.machine.empty()) {
    auto read = read_machine_model(verb.machine);
    if (!read) return with_preset_words(verb.machine, read.errors());
    machine = std::move(read.value());
  }
  InputErrors errors;
  const auto us = [](double value) { return std::llround(value * 1e3); };
  if (!verb.algorithm.empty()) {
    const auto algorithm = algorithm_of(verb.algorithm);
    machine.flat_gathers = false;
    if (algorithm)
      machine.algorithm = algorithm.value();
    else
      append_of("--algorithm", algorithm.errors(), &errors);
  }
  if (!verb.noise.empty()) {
    const auto noise = noise_of(verb.noise);
    if (noise)
      machine.noise = noise.value();
    else
      append_of("--noise", noise.errors(), &errors);
  }
  CostModel& cost = machine.cost;
  if (!verb.collectives.empty()) cost.tables.clear();
  for (const std::string& file : verb.collectives) {
    auto table = read_measured_collectives(file);
    if (table)
      cost.tables.push_back(std::move(table.value()));
    else
      errors.insert(errors.end(), table.errors().begin(), table.errors().end());
  }
  append_of("--collectives", verb.collectives.empty() ? InputErrors() : problems_of(cost), &errors);
  if (verb.latency_us) cost.link.alpha_ns = us(*verb.latency_us);
  if (verb.bandwidth_mb_per_s)
    cost.link.beta_fs_per_byte = fs_per_byte_of(*verb.bandwidth_mb_per_s);
  // Hosts whose network nobody describes are joined by the link that was named.
  const bool names_link = verb.latency_us || verb.bandwidth_mb_per_s || !verb.machine.empty();
  if (names_link && !machine.says_across) cost.across = cost.link;
  if (verb.across_latency_us) cost.across.alpha_ns = us(*verb.across_latency_us);
  if (verb.across_bandwidth_mb_per_s)
    cost.across.beta_fs_per_byte = fs_per_byte_of(*verb.across_bandwidth_mb_per_s);
  cost.ranks_per_host = verb.ranks_per_host.value_or(cost.ranks_per_host);
  machine.channels = verb.channels.value_or(machine.channels);
  machine.overlap_slowdown = verb.overlap_slowdown.value_or(machine.overlap_slowdown);
  machine.comm_slowdown = verb.comm_slowdown.value_or(machine.comm_slowdown);
  if (verb.forward_ms) machine.forward_ms = verb.forward_ms;
  if (verb.backward_ms) machine.backward_ms = verb.backward_ms;
  if (!errors.empty()) return errors;
  forget_accuracy(verb, &machine);
  return machine;
}

std::string words_of(const SimulateVerb& verb, const MachineModel& machine) {
  const LinkCost& link = machine.cost.link;
  std::string text = verb.machine.empty() ? "default" : verb.machine;
  if (!machine.cost.tables.empty()) return text + ", " + words_of_tables(machine.cost);
  text += fmt::format(", {:.1f} us a message", static_cast<double>(link.alpha_ns) * 1e-3);
  if (link.beta_fs_per_byte > 0)
    text += fmt::format(", {:.0f} MB/s", 1e9 / static_cast<double>(link.beta_fs_per_byte));
  if (machine.noise.any())
    text += fmt::format(", noise {} {}{}", to_word(machine.noise.distribution),
                        machine.noise.spread, machine.noise.per_bucket ? " a bucket" : "");
  return text;
}

}  // namespace lockstep
