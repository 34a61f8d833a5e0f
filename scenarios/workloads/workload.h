#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "scenarios/base/named_tensor.h"
#include "scenarios/scenario.h"

namespace lockstep {

// The ranks whose samples a layer normalizes together (sync_batch_norm.h). All of them call the
// same layers in the same order.
class BatchGroup {
 public:
  virtual ~BatchGroup() = default;
  // Gives the rows of all ranks, in order of rank: [ranks, numbers of a row]. `row`: one
  // dimension, the same length and dtype on all ranks. Blocks until all have called; throws where
  // a rank does not come.
  virtual at::Tensor all_gather(const at::Tensor& row) = 0;
};

// What is trained. Thread rule of everything here: one thread at a time per object; objects are
// independent of each other. Functions that draw random numbers use LibTorch's default CPU
// generator, which the whole process shares: see RandomSection.

// Holds a process-wide lock and seeds LibTorch's default generator; the draws of ranks that are
// threads of one process do not mix. Take it around drawing data and building a model.
class RandomSection {
 public:
  explicit RandomSection(uint64_t seed);
  ~RandomSection();
  RandomSection(const RandomSection&) = delete;
  RandomSection& operator=(const RandomSection&) = delete;
};

// How many of them, of all threads, have begun. Waits for none.
uint64_t random_sections();

// State of LibTorch's default CPU generator, a uint8 tensor, and back. Not while this thread is in
// a RandomSection.
at::Tensor generator_state();
void set_generator_state(const at::Tensor& state);

class ComputeClock;  // scenarios/layer_times.h
class SampleDraws;   // draws.h

class Model {
 public:
  virtual ~Model() = default;
  // Layers that normalize the samples of all ranks together do so through `group` from now on; it
  // must outlive the last forward and backward. Before, and with nullptr, they take what a forward
  // is given for the whole batch. Returns whether there are such layers.
  virtual bool normalize_over(BatchGroup*) { return false; }
  // Layers that draw random numbers in a forward draw them from `draws` from now on, which must
  // outlive the last forward. Returns whether there are such layers. A model that draws from
  // elsewhere is compared with no golden run.
  virtual bool draw_from(SampleDraws*) { return false; }
  // Names of modules that draw from LibTorch's default generator instead, as far as they are known.
  virtual std::vector<std::string> undeclared_random_layers() const { return {}; }
  // Of emulated compute: layers take their time from `clock` from now on, which must outlive the
  // last backward; before, and with nullptr, they take none. The caller says when a backward begins
  // (ComputeClock::begin_backward). Returns whether they can.
  virtual bool run_by(ComputeClock*) { return false; }
  // What the loss takes.
  virtual at::Tensor forward(const at::Tensor& input) = 0;
  // All tensors that the last forward gave, as far as a reducer would find them in what holds them;
  // `returned` is what forward() returned.
  virtual std::vector<at::Tensor> outputs(const at::Tensor& returned) const { return {returned}; }
  // In registration order, as torch::nn::Module::named_parameters() gives them.
  virtual NamedTensors parameters() const = 0;
  virtual NamedTensors buffers() const = 0;
};

// Builds the model of `part`, drawing its initial weights in float32 from the default generator,
// then converts to `dtype`: a double run of float32 starts from the same weights.
std::unique_ptr<Model> build_model(const Part& part, const std::string& dtype);

struct Batch {
  at::Tensor input;   // [samples, ...]
  at::Tensor target;  // [samples, ...]
  // Their places in the data set, by which layers draw random numbers (draws.h); empty: all of it.
  std::vector<int64_t> samples{};
};

// The whole data set of `part`, drawn in float32 (dyadic data: exactly representable) from the
// default generator, inputs first, then converted to `dtype`; tokens and classes stay int64.
Batch draw_data(const Part& part, const std::string& dtype);

// Shapes and dtypes of one sample of that set, without drawing it.
struct SampleSpec {
  std::vector<int64_t> input_shape;
  std::vector<int64_t> target_shape;
  c10::ScalarType input_type;
  c10::ScalarType target_type;
};
SampleSpec sample_spec(const Part& part, const std::string& dtype);

// Rows `indices` of the whole set (a copy).
Batch select(const Batch& data, const std::vector<int64_t>& indices);

// Of `count` rows of a batch, from `first` on.
std::vector<int64_t> samples_in(const Batch& batch, int64_t first, int64_t count);

// A shard in `count` equal parts, first to last (copies).
std::vector<Batch> micro_batches(const Batch& shard, int64_t count);

// Loss of a micro-batch, a shard or the whole batch: a scalar. With loss.times_world_size it is
// multiplied by `ranks`, the number of ranks over which gradients are averaged (1 on one device).
// `share`: see loss_share().
at::Tensor loss_of(const Part& loss, const at::Tensor& output, const at::Tensor& target,
                   int64_t ranks, double share = 1);

// What a mean loss of one micro-batch is multiplied by, so that adding up a rank's micro-batches
// and averaging over ranks gives the mean over the whole batch: 1 / accumulate_steps and, where
// averaging is sample_weighted, shard_samples x world_size / batch_samples. 1 for a summed loss.
double loss_share(const Scenario& scenario, int64_t shard_samples, int64_t batch_samples);

// One of LibTorch's optimizers over parameters in registration order.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual void step() = 0;
  // All state in a fixed order: for each parameter, each state word of this optimizer
  // ("fc1.weight.momentum_buffer"; "fc1.weight.step" is the number of updates so far, int64 [1]).
  // Tensors are undefined until the parameter's first update has made them; they are the
  // optimizer's own, not copies.
  virtual NamedTensors state() const = 0;
  // Puts back what state() of an optimizer of the same part and model gave, counters included;
  // before or after any step. Copies. Other names or another number of entries abort: see to it
  // that a file fits before.
  virtual void load(const NamedTensors& state) = 0;
  // Of all parameters. Not part of state(): the schedule computes it from the step.
  virtual double lr() const = 0;
  virtual void set_lr(double lr) = 0;
};
std::unique_ptr<Optimizer> build_optimizer(const Part& part, const NamedTensors& parameters);

class LossScale;  // update.h

// Model and optimizer of one rank or of a golden run.
struct Training {
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
  std::shared_ptr<SampleDraws> draws;     // of the model's forwards (forward_of)
  std::shared_ptr<LossScale> loss_scale;  // null without loss scaling; its state is the optimizer's
  NamedTensors parameters;
  NamedTensors buffers;
  // Copies of the buffers as the first forward of the step found them: those are what ranks must
  // agree on, since a forward may change each rank's own (running statistics) until the next
  // broadcast. See note_buffers().
  NamedTensors noted_buffers;
};

// Copies the buffers to noted_buffers; call after construction and before each step's first
// forward, when they have been broadcast.
void note_buffers(Training* training);

// Of one step, averaged gradients (in grad()) to new weights: loss scale, learning rate, clipping,
// optimizer, requantizing. A step whose scaled gradients are not finite changes no weight.
void update(const Scenario& scenario, int64_t step, Training* training);

// Draws the weights from the default generator; see RandomSection. Frozen parameters do not require
// a gradient. `devices`: where the model is to live (devices.h); empty: on the cpu.
Training build_training(const Scenario& scenario, const std::string& dtype,
                        const std::vector<c10::Device>& devices = {});

// Data and training exactly as a process of the scenario makes them, random numbers included:
// rng per_part:          data from substream "data"; model from substream "model" (and, where
//                        rank_seeds is different, of that rank).
// rng global_data_first: manual_seed(seed); rank 0 (every rank where rank_seeds is equal) draws the
//                        data; then the model is built from the same generator.
// A golden run asks for rank 0. `data` is undefined where this rank does not draw any (manual split
// on ranks other than 0). Weights lie on the requantize grid if the scenario has one.
struct Setup {
  Batch data;
  Training training;
};
Setup set_up(const Scenario& scenario, const std::string& dtype, int64_t rank,
             const std::vector<c10::Device>& devices = {});

// zero_grad "zero": existing gradients become 0 in place; "none": they become undefined.
void clear_gradients(const NamedTensors& parameters, const std::string& zero_grad);

// Rounds every weight to the nearest multiple of 1/denominator, in place; 0 does nothing.
void requantize(const NamedTensors& parameters, int64_t denominator);

// Before a process of one thread forks those that use LibTorch: else each makes a pool of a thread
// per core for mobile operators, whose threads spin until prepare_libtorch() ends them.
void prepare_libtorch_for_forks();

// `threads` per rank for LibTorch and BLAS, deterministic algorithms: call once per process, after
// fork and before any other operation.
void prepare_libtorch(int64_t threads);

// The scenario's word for a dtype ("float32", "float64", "bfloat16") and LibTorch's; other words
// abort.
c10::ScalarType scalar_type(const std::string& dtype);
// Of any tensor that a model or optimizer holds: "float32", "int64".
const char* to_word(c10::ScalarType type);

// model->forward() of these samples in step `step`. Every forward of ranks and golden runs goes
// this way: layers that draw random numbers draw those of the batch's samples, and
// training.draws->any_undeclared() tells whether something else has drawn, from LibTorch's default
// generators of the CPU or of a GPU that holds parameters.
at::Tensor forward_of(const Training& training, int64_t step, const Batch& batch);

// Does that forward, three times over, give the same bits? What it draws from generators that
// nobody else knows (at::Generator, <random>, rand()) no golden run draws, and nothing else shows
// it. Buffers are as before afterwards; layers of the model that meet other ranks' samples, or take
// their time from a clock, do so no more.
bool repeats_itself(const Training& training, int64_t step, const Batch& batch);

}  // namespace lockstep
