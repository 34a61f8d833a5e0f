#pragma once

#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/scenario.h"

namespace lockstep {

// A golden result kept with the project (golden/data/*.json): the weights of one device after the
// last step. `bits` are the float32 patterns; their hash is the file's checksum, so that an edited
// file is bad input. They count bit for bit only under the same fingerprint, at `decimals` printed
// decimals always. No LibTorch.
struct StoredTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<uint32_t> bits;
};
// Numbers that others printed, at the golden's decimals; the printout may be cut short.
struct PublishedValues {
  std::string of;  // one_device | run: what they were printed by
  std::string tensor;
  std::vector<double> values;
};
struct StoredGolden {
  std::string what;
  std::string source;
  std::string settings;     // golden_settings() of the scenario it was made with
  std::string fingerprint;  // "LibTorch 1.13.1; OpenBLAS ...; AVX512"
  int64_t decimals = 4;
  std::vector<StoredTensor> parameters;
  std::vector<PublishedValues> published;
};
Expected<StoredGolden> load_stored_golden(const std::string& path);
std::string to_text(const StoredGolden& golden);  // the file, with its checksum

// What the weights of one device depend on, as JSON: seed, data, model, loss, optimizer, steps. Not
// the world size, nor reducer and communicator.
std::string golden_settings(const Scenario& scenario);

}  // namespace lockstep
