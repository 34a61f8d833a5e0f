#include "sim/report/ci/properties.h"

#include <fmt/format.h>

#include "sim/report/version.h"

namespace lockstep {

Properties properties_of(const Machine& machine, const Libraries& libraries, uint64_t seed) {
  Properties properties = {{"lockstep", lockstep_version()}, {"commit", lockstep_commit()}};
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) properties.emplace_back(name, value);
  };
  add("libtorch", libraries.torch);
  add("gloo", libraries.gloo);
  add("blas", libraries.blas);
  add("torch_cpu_capability", libraries.torch_cpu_capability);
  add("blas_cpu_capability", libraries.blas_cpu_capability);
  add("cpu", machine.cpu);
  add("cores", std::to_string(machine.cores));
  add("seed", std::to_string(seed));
  return properties;
}

void say_inconclusive(const std::string& verdict, TestReport* report) {
  if (verdict != "inconclusive" || counts_of(report->cases).inconclusive > 0) return;
  TestCase one;
  one.group = report->cases.empty() ? "lockstep" : report->cases.back().group;
  one.name = "verdict";
  one.result = TestCase::Result::inconclusive;
  one.kind = "inconclusive";
  one.message = one.text = report->answer;
  report->cases.push_back(std::move(one));
}

std::string without_end(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace lockstep
