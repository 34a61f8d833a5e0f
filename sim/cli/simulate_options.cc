#include "sim/cli/app_options.h"
#include "sim/cli/range.h"
#include "sim/cli/simulate.h"
#include "sim/des/machine_model.h"

namespace lockstep {
namespace {

constexpr double kMostMs = 3'600'000;

class Adder {
 public:
  Adder(CLI::App* verb, const char* group) : verb_(verb), group_(group) {}
  template <class T>
  CLI::Option* text(const char* name, T* value, const std::string& help, const char* form) {
    return verb_->add_option(name, *value, help)->option_text(form)->group(group_);
  }
  void number(const char* name, std::optional<double>* value, const std::string& help,
              const char* form, double least, double most) {
    text(name, value, help, form)->check(between(least, most));
  }
  template <class Integer>
  void integer(const char* name, Integer* value, const std::string& help, const char* form,
               int64_t least, int64_t most) {
    text(name, value, help, form)->check(between(least, most));
  }

 private:
  CLI::App* verb_;
  const char* group_;
};

void add_machine(CLI::App* verb, SimulateVerb* options) {
  Adder add(verb, "On which machines");
  add.text("--machine", &options->machine,
           "What `lockstep calibrate` fitted, or one of " + machine_preset_words() + " (loopback)",
           "FILE|WORD");
  add.text("--algorithm", &options->algorithm, "Of all-reduce (the communicator's)", "WORD");
  add.number("--latency-us", &options->latency_us, "Of a message", "US", 0, 1e9);
  add.number("--bandwidth-mb-per-s", &options->bandwidth_mb_per_s, "Of a link, 10^6 bytes", "N",
             1e-3, 1e9);
  add.integer("--ranks-per-host", &options->ranks_per_host, "Ranks that share a host", "N", 1,
              1'000'000);
  add.number("--across-latency-us", &options->across_latency_us, "Between hosts", "US", 0, 1e9);
  add.number("--across-bandwidth-mb-per-s", &options->across_bandwidth_mb_per_s, "Between hosts",
             "N", 1e-3, 1e9);
  add.integer("--channels", &options->channels, "Collectives under way at once (1)", "N", 1, 64);
  add.number("--overlap-slowdown", &options->overlap_slowdown,
             "Part by which compute is slower under communication (0)", "X", 0, 16);
  add.number("--forward-ms", &options->forward_ms, "Where compute is real (half of backward)", "MS",
             0, kMostMs);
  add.number("--backward-ms", &options->backward_ms, "Where compute is real", "MS", 0, kMostMs);
  add.text("--noise", &options->noise,
           "Of compute: normal, uniform, lognormal or exponential with its spread", "normal:0.02");
}

void add_what(CLI::App* verb, SimulateVerb* options) {
  Adder add(verb, "What is simulated");
  add.integer("--world-size", &options->ranks,
              "So many ranks, each with the work of one in the scenario", "N", 1, 1'000'000);
  add.integer("--steps", &options->steps, "So many steps", "N", 1, 10'000'000);
  add.text("--predict", &options->predict,
           "A table over caps and world sizes, and which cap is best",
           "caps=1..100,worlds=2..1024");
  add.text("--average", &options->average,
           "Average parameters in groups: RANKS:PERIOD of each level (the scenario's)",
           "8:2,64:16");
  add.text("--engine", &options->engine, "L0 to L4 (the cheapest that is exact)", "WORD");
  add.integer("--threads", &options->threads, "Threads; the result is the same (all cores)", "N", 0,
              1024);
}

void add_failures(CLI::App* verb, SimulateVerb* options) {
  Adder add(verb, "Hosts that fail");
  add.number("--mtbf-hours", &options->mtbf_hours,
             "Mean time between failures of one host: how long does a run of days take?", "H", 1e-3,
             1e8);
  add.number("--work-hours", &options->work_hours,
             "Of training without failures (what the steps take)", "H", 1e-6, 2e5);
  add.number("--checkpoint-s", &options->checkpoint_s, "What a checkpoint takes", "S", 0, 1e6);
  add.number("--checkpoint-every-s", &options->checkpoint_every_s,
             "Work between two checkpoints (Daly's optimum)", "S", 1e-3, 1e9);
  add.number("--restart-s", &options->restart_s, "From a failure until work goes on", "S", 0, 1e6);
}

}  // namespace

void add_simulate(CLI::App& app, std::function<int()>* action) {
  auto options = std::make_shared<SimulateVerb>();
  CLI::App* verb = app.add_subcommand(
      "simulate", "Run scenarios in virtual time: any number of ranks, no processes.");
  add_selection(verb, &options->selection, true);
  add_what(verb, options.get());
  add_machine(verb, options.get());
  add_failures(verb, options.get());
  Adder add(verb, "Output");
  add.text("--json", &options->json, "Write the result as JSON", "FILE");
  add.text("--trace", &options->trace, "Timeline of one run for Perfetto", "FILE");
  add.text("--svg", &options->svg, "Draw a prediction, or a step of one run", "FILE");
  add.text("--out", &options->out, "Leave one run's records there, for lockstep analyze", "DIR");
  add.text("--color", &options->color, "When to colour verdicts", "auto|always|never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  verb->add_flag("-q,--quiet", options->quiet, "Only the last line")->group("Output");
  verb->footer(R"(Examples, from the root of the repository
  lockstep simulate scenarios/stragglers/named_compute.json
  lockstep simulate scenarios/sweeps/pytorch_gloo_resnet50.json --predict caps=1..100
  lockstep simulate scenarios/stragglers/emulated_resnet50.json --world-size 10000 \
    --noise normal:0.02 --latency-us 5 --bandwidth-mb-per-s 25000
  lockstep simulate scenarios/stragglers/emulated_resnet50.json --world-size 16384 \
    --ranks-per-host 8 --mtbf-hours 6328 --work-hours 1296 --checkpoint-s 60 --restart-s 600

Exit codes
  0      simulated; what the scenarios expect of time came to be
  1      it did not
  2      bad input, or an output could not be written; nothing was concluded)");
  verb->callback([=] { *action = [=] { return simulate_verb(*options); }; });
}

}  // namespace lockstep
