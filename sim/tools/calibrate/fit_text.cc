#include "sim/tools/calibrate/fit_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <optional>

#include "scenarios/base/text.h"
#include "sim/report/text_style.h"

namespace lockstep {
namespace {

std::string text_of(const char* what, const MaybeFitted& fitted) {
  if (!fitted.number) return fmt::format("{}: unknown; {}\n", what, fitted.unknown);
  return fmt::format("{}: {:.3g} (95 % interval {:.3g} .. {:.3g})\n", what, fitted.number->value,
                     fitted.number->low, fitted.number->high);
}

std::string text_of_accuracy(const Fit& fit) {
  const std::optional<Accuracy>& accuracy = fit.machine.accuracy;
  if (!accuracy && fit.of_traces)
    return "a simulated step: not compared with the traced ones, because traces do not say which "
           "cap they ran with; lockstep simulate --machine with a scenario of that cap gives a "
           "step to compare with theirs\n";
  if (!accuracy && fit.machine.fitted_on.size() < 2)
    return "a simulated step: its error is unknown with one run, to which the machine is fitted; "
           "more runs would tell\n";
  if (!accuracy)
    return "a simulated step: never compared with these runs, which cannot be simulated\n";
  std::string text = fmt::format(
      "a simulated step: within {:.1f} % (95 %, by {} runs, each on a machine fitted to the "
      "others)",
      accuracy->step_error * 100, accuracy->runs);
  if (accuracy->cap_error)
    text += fmt::format("; the difference between two caps: within {:.1f} %",
                        *accuracy->cap_error * 100);
  return text + "\n";
}

}  // namespace

std::string text_of_fit(const Fit& fit) {
  Table table;
  table.column("operation");
  for (const char* header : {"ranks", "bytes", "samples", "measured us", "fitted us", "error"})
    table.column(header, Table::Align::right);
  for (const FittedSize& size : fit.sizes)
    table.row({to_word(size.operation), std::to_string(size.ranks), grouped(size.bytes),
               std::to_string(size.samples), fmt::format("{:.1f}", size.measured_us),
               fmt::format("{:.1f}", size.fitted_us),
               fmt::format("{:+.1f} %", (size.fitted_us / size.measured_us - 1) * 100)});
  const MachineModel& machine = fit.machine;
  return table.text(style_of("never", STDOUT_FILENO)) +
         fmt::format(
             "\nlatency {:.1f} us{}, {:.0f} MB/s ({:.0f} .. {:.0f})\n"
             "a step beside its layers: {:.3f} ms before, {:.3f} ms after; a launch {:.1f} us\n",
             fit.latency_us.value,
             fit.latency_assumed ? ""
                                 : fmt::format(" (95 % interval {:.1f} .. {:.1f})",
                                               fit.latency_us.low, fit.latency_us.high),
             fit.bandwidth_mb_per_s.value, fit.bandwidth_mb_per_s.low, fit.bandwidth_mb_per_s.high,
             static_cast<double>(machine.load_ns) * 1e-6,
             static_cast<double>(machine.optimizer_ns) * 1e-6,
             static_cast<double>(machine.launch_ns) * 1e-3) +
         (fit.latency_assumed ? fmt::format("latency: unknown; {}\n", kOneSize) : "") +
         text_of("each bucket in backward, us", fit.backward.bucket_us) +
         text_of("overlap_slowdown", fit.backward.overlap_slowdown) + text_of_accuracy(fit);
}

std::string answer_of_fit(const Fit& fit, int64_t count, const char* what) {
  return fmt::format("fitted: {} {}, {} collectives, mean error {:.1f} %, largest {:.1f} %", count,
                     plural(count, what), grouped(fit.samples), fit.mean_error * 100,
                     fit.largest_error * 100);
}

}  // namespace lockstep
