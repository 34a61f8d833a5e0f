#pragma once

#include <functional>
#include <memory>
#include <string>

#include "scenarios/base/part.h"
#include "scenarios/workloads/models.h"

namespace lockstep {

// Models and data sets of one's own. Scenarios ask for them by name; what stands under `options`
// there, numbers, strings and true or false, is given to the factory:
//   "model": {"kind": "registered", "name": "my_net", "options": {"hidden": 16}}
//   "data": {"kind": "registered", "name": "my_set", "samples": 120, "options": {"features": 8}}
// Ranks and golden runs are processes of their own: each builds what it needs, with LibTorch's
// default generator seeded alike, so a factory must make the same of the same generator state.

// A model with its initial weights in float32, converted to `dtype` ("float32", "float64",
// "bfloat16") then, so that a double run starts from the same weights: model_of() does that.
using ModelFactory =
    std::function<std::unique_ptr<Model>(const Options& options, const std::string& dtype)>;
// Returns true; a name that is taken aborts. Call before main(), or at least before any run.
bool register_model(const std::string& name, ModelFactory factory);
// Throws std::runtime_error that says which there are, where none has the name.
void find_model(const std::string& name);

// A torch::nn::Module with a constructor from `const lockstep::Options&` and
// `at::Tensor forward(const at::Tensor&)`. Options are its own: check has() for what may be absent.
#define LOCKSTEP_REGISTER_MODEL(name, Module)                                  \
  LOCKSTEP_REGISTERED = ::lockstep::register_model(                            \
      name, [](const ::lockstep::Options& options, const std::string& dtype) { \
        return ::lockstep::model_of(std::make_shared<Module>(options), dtype); \
      })

// The whole set: inputs [samples, ...] in float32 or int64 and targets [samples, ...] in float32
// or, classes and tokens, int64. Drawn from the default generator, inputs first, or read from
// anywhere.
using DataFactory = std::function<Batch(const Options& options, int64_t samples)>;
bool register_data_set(const std::string& name, DataFactory factory);
void find_data_set(const std::string& name);  // likewise

#define LOCKSTEP_REGISTER_DATA_SET(name, function) \
  LOCKSTEP_REGISTERED = ::lockstep::register_data_set(name, function)

// What scenarios of kind "registered" get. Throw std::runtime_error for a name that nobody
// registered, and where a factory's result is not what is said above.
std::unique_ptr<Model> build_registered(const Options& options, const std::string& dtype);
Batch draw_registered(const Part& part);

}  // namespace lockstep
