#pragma once

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "sim/cli/hosts.h"
#include "sim/cli/verbs.h"

namespace lockstep {

// Options that several verbs share, each set in a group of the help.

// Examples, then the exit codes.
std::string footer(const std::string& examples);
// Of a verb that writes a text and judges nothing.
std::string footer_of_writer(const std::string& examples);
// Which files and runs; `filter`: --filter as well.
void add_selection(CLI::App* verb, Selection* selection, bool filter);
void add_output(CLI::App* verb, VerifyOptions* options);
// --json and --color, of verbs that read kept runs.
void add_json_and_color(CLI::App* verb, std::string* json, std::string* color);
// --html, of every verb that ends in an answer.
void add_html(CLI::App* verb, std::string* html);
// --trace and --trace-kind, of verbs that have the records of runs.
void add_trace(CLI::App* verb, TraceOptions* options);
// --junit and --annotations.
void add_ci(CLI::App* verb, CiOptions* options);
void add_how(CLI::App* verb, VerifyOptions* options);
// COMMAND ..., behind "--", and how it is started. Words are handed on as they are: CLI11 would
// take "[a,b]" for two and "" for none, so that it is given as_verbatim() of each.
void add_started_program(CLI::App* verb, std::vector<std::string>* command, bool* spawns,
                         bool* pretends_gpus);
std::string as_verbatim(const std::string& word);
// --shard; where files are named, --last-failed and --baseline too.
void add_narrowing(CLI::App* verb, VerifyOptions* options, bool files);
// --shard alone.
void add_shard(CLI::App* verb, std::optional<Shard>* shard);
void add_hosts(CLI::App* verb, HostsOptions* options);

// --trust-programs, of verbs that execute scenarios of programs.
void add_trust_programs(CLI::App* verb, Selection* selection);

// Names of what add_selection(), add_output() and add_how() add, for tables of forms.
inline constexpr const char* kSelectionOptions =
    " --data --device --full --seed --set --trust-model ";
inline constexpr const char* kOutputOptions =
    " --annotations --color --json --junit --keep --metrics --out --quiet --verbose ";
inline constexpr const char* kHowOptions = " --fail-fast --fresh-processes --jobs ";

// Whole verbs; `action` gets what they do.
// `measure`: what is done with its options.
void add_sweep(CLI::App& app, std::function<int()>* action,
               const std::function<int(const SweepOptions&)>& measure);
// With --task, --zygote or --libraries its arguments go to lockstep-worker untouched (run_cli).
void add_worker(CLI::App& app, std::function<int()>* action);

// An option's number, from `least` to `most`. Not CLI::Range, which lets NaN through and says
// nothing of the range where the text is no number at all.
template <class T>
CLI::Validator between(T least, T most) {
  const auto check = [=](const std::string& text) -> std::string {
    T value{};
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stop == end && value >= least && value <= most) return "";
    return fmt::format("\"{}\"; expected {} from {} to {}", text,
                       std::is_floating_point_v<T> ? "a number" : "an integer", least, most);
  };
  return CLI::Validator(check, "");
}

}  // namespace lockstep
