#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "scenarios/json/schema.h"
#include "scenarios/parse/suite.h"
#include "scenarios/scenario_schema.h"
#include "sim/des/job_of_plan.h"
#include "sim/des/modelled.h"
#include "sim/des/records.h"
#include "sim/des/simulate.h"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// Keys of a file that no run has: what is left of them is in other keys.
const std::set<std::string> kOfFiles = {"/$schema", "/epochs",           "/batch_size_per_rank",
                                        "/full",    "/samples_per_rank", "/sweep",
                                        "/matrix",  "/exclude"};

// Every place in a scenario where a value may stand, with the words that it may be; from the
// schema.
class Places {
 public:
  explicit Places(const json& schema) : schema_(schema) { object(schema, ""); }
  std::map<std::string, std::set<std::string>> words;  // by pointer

 private:
  const json& followed(const json& node) const {
    if (!node.contains("$ref")) return node;
    const std::string reference = node["$ref"];
    return schema_["definitions"][reference.substr(reference.rfind('/') + 1)];
  }
  void object(const json& node, const std::string& pointer) {
    const json properties = node.value("properties", json::object());
    for (const auto& [key, member] : properties.items())
      place(followed(member), pointer + "/" + key);
    for (const json& branch : node.value("allOf", json::array()))
      if (branch.contains("then")) object(branch["then"], pointer);
  }
  void place(const json& node, const std::string& pointer) {
    if (kOfFiles.contains(pointer)) return;
    if (pointer == "/expect") return void(words[pointer + "/verdict"]);
    if (node.contains("properties")) return object(node, pointer);
    const json items = followed(node.value("items", json::object()));
    if (items.contains("properties")) return object(items, pointer + "/*");
    auto& known = words[pointer];
    for (const json& word : node.value("enum", json::array()))
      known.insert(word.is_string() ? word.get<std::string>() : word.dump());
    if (node.value("type", json()) == "boolean") known.insert({"false", "true"});
  }

  const json& schema_;
};

// A key that the schema gets is refused until somebody has said what it is in virtual time.
TEST(Modelled, SaysOfEveryKeyAndWordOfAScenarioWhatItIs) {
  const json schema = json::parse(scenario_schema_text());
  const Places places(schema);
  EXPECT_GT(places.words.size(), 150u);
  for (const auto& [pointer, words] : places.words) {
    if (words.empty()) {
      EXPECT_TRUE(row_for(pointer, "0") != nullptr || row_for(pointer + "/x", "0") != nullptr)
          << pointer;
    }
    for (const std::string& word : words)
      EXPECT_NE(row_for(pointer, word), nullptr) << pointer << " " << word;
  }
  for (const ModelledKey& row : modelled_keys()) {
    const std::string pointer = row.pointer;
    if (pointer.ends_with("/**") || !places.words.contains(pointer)) continue;
    const auto& words = places.words.at(pointer);
    for (const char* value : row.values) {
      EXPECT_TRUE(words.empty() || words.contains(value)) << pointer << " " << value;
    }
  }
}

TEST(Modelled, WhatNobodyDecidedAboutIsRefused) {
  EXPECT_EQ(row_for("/a_new_key", "1"), nullptr);
  EXPECT_EQ(row_for("/reducer/kind", "a new one"), nullptr);
  EXPECT_EQ(row_for("/faults/0/phase", "a new one"), nullptr);
}

TEST(Modelled, IsWhatTheDocumentSays) {
  const std::string path = LOCKSTEP_SOURCE_DIR "/docs/virtual_time.md";
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  const size_t begin = all.find("| key |");
  const size_t end = all.find("\n\n", begin);
  ASSERT_NE(begin, all.npos);
  if (std::getenv("LOCKSTEP_WRITE_DOCS") != nullptr) {
    const std::string rest = end == all.npos ? "" : all.substr(end + 1);
    std::ofstream(path) << all.substr(0, begin) + modelled_markdown() + rest;
  } else {
    EXPECT_EQ(all.substr(begin, end - begin) + "\n", modelled_markdown())
        << "LOCKSTEP_WRITE_DOCS=1 writes it";
  }
}

using Sets = std::vector<std::string>;
const Sets kBase = {"/world_size=3", "/reducer/kind=bucketed", "/faults=[]", "/steps=6"};

Sets operator+(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Expected<RunPlan> planned(const Sets& sets, const std::string& file) {
  const auto loaded =
      load_scenario_file(LOCKSTEP_SOURCE_DIR "/scenarios/" + file, {.sets = sets, .seed = {}});
  if (!loaded) return loaded.errors();
  const auto plans = make_plans(loaded.value(), {.only = true});
  if (!plans) return plans.errors();
  return plans.value().front();
}

// Everything that `simulate` says about a run, in one line of text.
std::string answer_of(const Sets& sets, const std::string& file) {
  const auto plan = planned(sets, file);
  if (!plan) return "no plan: " + to_text(plan.errors().front());
  MachineModel machine = default_machine_model();
  machine.backward_ms = 20;
  machine.copy_fs_per_byte = fs_per_byte_of(1000);
  const auto job = job_of_plan(plan.value(), machine);
  if (!job) return "refused: " + to_text(job.errors().front());
  std::string text;
  const auto run = simulate(job.value().job, {}, [&](const StepTrace& trace) {
    for (const PassTrace& pass : trace.passes)
      for (const auto& arrivals : pass.arrival_ns)
        for (const int64_t arrival_ns : arrivals) text += std::to_string(arrival_ns) + " ";
  });
  if (!run) return "refused: " + to_text(run.errors().front());
  for (const StepNumbers& step : run.value().steps)
    text += std::to_string(step.duration_ns) + "/" + std::to_string(step.exposed_ns) + " ";
  if (const auto& failure = run.value().failure)
    text += std::string(to_word(failure->cause)) + " " +
            std::to_string(failure->rank.value_or(-1)) + " " + std::to_string(failure->step) + " " +
            failure->place + " " + std::to_string(failure->known_ns);
  return text;
}

struct Change {
  std::string pointer;  // whose value is another one
  Sets before, after;
  std::string file = "stragglers/named_compute.json";
};

std::string fault(const std::string& rest) { return "/faults=[{" + rest + "}]"; }
const std::string kStall = R"("kind": "stall", "rank": 1, "duration_ms": 7)";
const std::string kModel = "/model=";
const std::string kData = "/data=";

// Of each key that counts an example: this is what keeps one from being let in and then ignored.
std::vector<Change> changes() {
  const auto faults = [](const std::string& key, const std::string& before,
                         const std::string& after) {
    return Change{"/faults/*/" + key, {fault(before)}, {fault(after)}};
  };
  const auto mlp = [](const std::string& hidden, const std::string& more) {
    return Sets{kModel + R"({"kind": "mlp", "in_features": 64, "hidden": )" + hidden +
                    R"(, "out_features": 16)" + more + "}",
                kData + R"({"kind": "randn", "samples": 48, "features": 64, "targets": 16})",
                "/batch_size=12"};
  };
  std::vector<Change> all = {
      {"/seed",
       {fault(kStall + R"(, "probability": 0.5)")},
       {fault(kStall + R"(, "probability": 0.5)"), "/seed=99"}},
      {"/world_size", {}, {"/world_size=4"}},
      {"/steps", {}, {"/steps=7"}},
      {"/dtype", {}, {"/dtype=float64"}},
      {"/accumulate_steps", {}, {"/accumulate_steps=2"}},
      {"/accumulate_sync",
       {"/accumulate_steps=2"},
       {"/accumulate_steps=2", "/accumulate_sync=each"}},
      {"/frozen", mlp("[128]", ""), mlp("[128]", "") + Sets{R"(/frozen=["fc1"])"}},
      {"/model/hidden", mlp("[128]", ""), mlp("[256]", "")},
      {"/model/bias", mlp("[4096]", ""), mlp("[4096]", R"(, "bias": false)")},
      {"/reducer/kind", {}, {R"(/reducer={"kind": "flat"})"}},
      {"/reducer/virtual_shards",
       {R"(/reducer={"kind": "invariant", "virtual_shards": 3})"},
       {R"(/reducer={"kind": "invariant", "virtual_shards": 6})"}},
      {"/reducer/reshard_after_forward",
       {R"(/reducer={"kind": "fsdp"})"},
       {R"(/reducer={"kind": "fsdp", "reshard_after_forward": false})"}},
      {"/reducer/prefetch",
       {R"(/reducer={"kind": "fsdp"})"},
       {R"(/reducer={"kind": "fsdp", "prefetch": 0})"}},
      {"/reducer/shard_ranks",
       {R"(/reducer={"kind": "fsdp"})"},
       {R"(/reducer={"kind": "fsdp", "shard_ranks": 1})"}},
      {"/reducer/gather_dtype",
       {R"(/reducer={"kind": "fsdp"})"},
       {R"(/reducer={"kind": "fsdp", "gather_dtype": "bfloat16", "reduce_dtype": "float32"})"}},
      {"/reducer/reduce_dtype",
       {R"(/reducer={"kind": "fsdp"})"},
       {R"(/reducer={"kind": "fsdp", "reduce_dtype": "bfloat16"})"}},
      {"/reducer/bucket_cap_mb", {}, {"/reducer/bucket_cap_mb=0.005"}},
      {"/reducer/first_bucket_mb", {}, {"/reducer/first_bucket_mb=0.001"}},
      {"/reducer/gradient_as_bucket_view", {}, {"/reducer/gradient_as_bucket_view=true"}},
      {"/communicator/algorithm",
       {"/world_size=6"},
       {"/world_size=6", "/communicator/algorithm=bcube"}},
      {"/comm_hook/kind", {}, {R"(/comm_hook={"kind": "fp16"})"}},
      {"/comm_hook/start_step",
       {R"(/comm_hook={"kind": "post_local_sgd", "start_step": 2})", "/lanes=[\"replica\"]"},
       {R"(/comm_hook={"kind": "post_local_sgd", "start_step": 4})", "/lanes=[\"replica\"]"}},
      {"/model_averaging/kind",
       {},
       {R"(/model_averaging={"kind": "periodic"})", "/lanes=[\"replica\"]"}},
      {"/model_averaging/period",
       {R"(/model_averaging={"kind": "periodic"})"},
       {R"(/model_averaging={"kind": "periodic", "period": 3})"}},
      {"/model_averaging/warmup_steps",
       {R"(/model_averaging={"kind": "periodic"})"},
       {R"(/model_averaging={"kind": "periodic", "warmup_steps": 3})"}},
      {"/compute/kind", {}, {R"(/compute={"kind": "real"})"}},
      {"/compute/forward_ms", {}, {"/compute/forward_ms=9"}},
      {"/compute/backward_ms", {}, {"/compute/backward_ms=9"}},
      {"/time_scale", {}, {"/time_scale=0.5"}},
      {"/timeouts/collective_ms",
       {fault(R"("kind": "stall", "rank": 1, "duration_ms": 900)")},
       {fault(R"("kind": "stall", "rank": 1, "duration_ms": 900)"), "/timeouts/collective_ms=300"}},
      faults("rank", R"("kind": "kill", "rank": 1)", R"("kind": "kill", "rank": 2)"),
      faults("step", kStall, kStall + R"(, "step": 2)"),
      faults("last_step", kStall + R"(, "step": 2)", kStall + R"(, "step": 2, "last_step": 4)"),
      faults("phase", R"("kind": "kill", "rank": 1)",
             R"("kind": "kill", "rank": 1, "phase": "optimizer")"),
      faults("bucket", R"("kind": "kill", "rank": 1, "step": 3, "bucket": 0)",
             R"("kind": "kill", "rank": 1, "step": 3, "bucket": 1)"),
      faults("layer", R"("kind": "slow_layer", "rank": 1, "duration_ms": 7, "layer": "fc1")",
             R"("kind": "slow_layer", "rank": 1, "duration_ms": 7, "layer": "fc2")"),
      faults("duration_ms", kStall, R"("kind": "stall", "rank": 1, "duration_ms": 8)"),
      faults("distribution", kStall, kStall + R"(, "distribution": "lognormal")"),
      faults("spread", kStall + R"(, "distribution": "lognormal")",
             kStall + R"(, "distribution": "lognormal", "spread": 1)"),
      faults("probability", kStall, kStall + R"(, "probability": 0.5)"),
      faults("every_steps",
             R"("kind": "periodic_pause", "rank": 1, "duration_ms": 7, "every_steps": 2)",
             R"("kind": "periodic_pause", "rank": 1, "duration_ms": 7, "every_steps": 3)"),
      faults("factor", R"("kind": "slow", "rank": 1, "factor": 1.5)",
             R"("kind": "slow", "rank": 1, "factor": 1.6)"),
      faults("bandwidth_mb_per_s", R"("kind": "slow_link", "rank": 1, "bandwidth_mb_per_s": 10)",
             R"("kind": "slow_link", "rank": 1, "bandwidth_mb_per_s": 5)"),
  };
  return all;
}

// The same of keys of models, whose data change with them.
std::vector<Change> changes_of_models() {
  const auto numbers = [](const std::string& in, const std::string& out) {
    return Sets{
        kModel + R"({"kind": "linear", "in_features": )" + in + R"(, "out_features": )" + out + "}",
        kData + R"({"kind": "randn", "samples": 48, "features": )" + in + R"(, "targets": )" + out +
            "}",
        "/batch_size=12"};
  };
  const auto images = [](const std::string& side) {
    return Sets{"/data/height=" + side, "/data/width=" + side};
  };
  const std::string gpt = "gallery/gpt.json", nets = "gallery/mnist_convnet.json";
  const Sets mlp = numbers("64", "16") +
                   Sets{kModel + R"({"kind": "mlp", "in_features": 64, "hidden": [128], )" +
                        R"("out_features": 16})"};
  const Sets layers = numbers("64", "16") +
                      Sets{kModel + R"({"kind": "mlp", "in_features": 64, "hidden": [16, 128], )" +
                               R"("out_features": 16})",
                           "/reducer/find_unused_parameters=true"};
  const auto sized = [&](const std::string& sizes) {
    return numbers("1", "1") + Sets{kModel + R"({"kind": "sized_layers", "sizes": )" + sizes + "}"};
  };
  const auto listed = [&](const std::string& list) {
    return numbers("1", "1") +
           Sets{kModel + R"({"kind": "parameters", "parameters": )" + list + "}",
                R"(/compute={"kind": "emulated", "forward_ms": 1})", R"(/lanes=["replica"])"};
  };
  const auto inception = [](const std::string& auxiliary) {
    return Sets{kModel + R"({"kind": "inception_v3", "aux_logits": )" + auxiliary + "}",
                kData + R"({"kind": "images", "samples": 12, "channels": 3, "height": 299, )" +
                    R"("width": 299, "classes": 1000})",
                R"(/loss={"kind": "cross_entropy"})",
                "/batch_size=12",
                R"(/compute={"kind": "emulated", "forward_ms": 1})",
                R"(/lanes=["replica"])"};
  };
  const Sets small = {"/reducer/bucket_cap_mb=0.01", "/reducer/first_bucket_mb=0.01"};
  return {
      {"/model/kind", numbers("64", "16"), mlp},
      {"/model/in_features", numbers("64", "16"), numbers("4096", "16")},
      {"/model/out_features", numbers("64", "16"), numbers("64", "1024")},
      {"/model/features", images("28"), images("32") + Sets{"/model/features=1024"},
       "gallery/auto_encoder_3_ranks.json"},
      {"/model/register", layers + small, layers + small + Sets{"/model/register=backwards"}},
      {"/ignored", mlp, mlp + Sets{R"(/ignored=["fc1"])"}},
      {"/model/sizes", sized("[64, 4096]"), sized("[64, 65536]")},
      {"/model/parameters", listed(R"(["a.weight 64", "b.weight 64x64"])"),
       listed(R"(["a.weight 64", "b.weight 64x1024"])")},
      {"/model/aux_logits", inception("true"), inception("false")},
      {"/model/classes", {}, {"/model/classes=4000", "/data/classes=4000"}, nets},
      {"/model/vocabulary", {}, {"/model/vocabulary=4000", "/data/vocabulary=4000"}, gpt},
      {"/model/context", {}, {"/model/context=1024", "/data/length=1024"}, gpt},
      {"/model/layers", {}, {"/model/layers=3"}, gpt},
      {"/model/width", {}, {"/model/width=64"}, gpt},
  };
}

TEST(Modelled, EveryKeyThatCountsChangesTheAnswer) {
  std::set<std::string> shown;
  std::vector<Change> all = changes();
  for (Change& change : changes_of_models()) all.push_back(std::move(change));
  for (const Change& change : all) {
    const std::string before = answer_of(kBase + change.before, change.file);
    const std::string after = answer_of(kBase + change.after, change.file);
    EXPECT_THAT(before, testing::Not(testing::HasSubstr("no plan"))) << change.pointer;
    EXPECT_THAT(before + after, testing::Not(testing::HasSubstr("refused"))) << change.pointer;
    EXPECT_THAT(after, testing::Not(testing::HasSubstr("no plan"))) << change.pointer;
    EXPECT_NE(before, after) << change.pointer;
    shown.insert(change.pointer);
  }
  for (const ModelledKey& row : modelled_keys()) {
    const std::string pointer = row.pointer;
    if (row.counts != Counts::time) continue;
    if (pointer == "/faults/*/kind" || pointer == "/compute/profile")
      continue;  // each kind below; tests/cli/emulation_test.py
    EXPECT_TRUE(shown.contains(pointer)) << pointer;
  }
}

const std::map<std::string, std::string> kExamples = {
    {"slow", R"("factor": 1.5)"},
    {"imbalance", R"("factor": 1.5)"},
    {"wandering", R"("factor": 1.5, "every_steps": 2)"},
    {"stall", R"("duration_ms": 500)"},
    {"periodic_pause", R"("duration_ms": 500, "every_steps": 2)"},
    {"slow_layer", R"("duration_ms": 500, "layer": "fc1")"},
    {"launch_stall", R"("duration_ms": 500)"},
    {"slow_loader", R"("duration_ms": 500)"},
    {"slow_link", R"("bandwidth_mb_per_s": 1)"},
    {"latency", R"("duration_ms": 500)"},
    {"jitter", R"("duration_ms": 500)"},
};

// With emulated compute and, where that cannot be, with real.
TEST(Modelled, EveryFaultThatCountsChangesTheAnswer) {
  for (const ModelledKey& row : modelled_keys()) {
    if (std::string(row.pointer) != "/faults/*/kind" || row.counts != Counts::time) continue;
    for (const std::string kind : row.values)
      for (const bool emulated : {true, false}) {
        if (kind == "launch_stall" && emulated) continue;  // refused by the plan
        Sets base = kBase;
        if (!emulated) base = base + Sets{R"(/compute={"kind": "real"})", "/device=fake"};
        const auto more = kExamples.find(kind);
        std::string text = R"("kind": ")" + kind + '"';
        if (kind != "wandering") text += R"(, "rank": 1)";
        if (more != kExamples.end()) text += ", " + more->second;
        const std::string with =
            answer_of(base + Sets{fault(text)}, "stragglers/named_compute.json");
        EXPECT_THAT(with, testing::Not(HasSubstr("refused"))) << kind;
        EXPECT_THAT(with, testing::Not(HasSubstr("no plan"))) << kind;
        EXPECT_NE(with, answer_of(base, "stragglers/named_compute.json")) << kind << emulated;
      }
  }
}

std::string refusal(const Sets& sets) {
  return answer_of(kBase + sets, "stragglers/named_compute.json");
}

TEST(Modelled, WhatIsNotModelledIsRefusedAtItsPlace) {
  EXPECT_THAT(refusal({R"(/mutants=[{"kind": "wrong_divisor"}])"}),
              HasSubstr("mutant \"wrong_divisor\" cannot be simulated"));
  for (const char* kind : {"shm", "local"})
    EXPECT_THAT(refusal({std::string("/communicator/kind=") + kind}),
                HasSubstr("cannot be simulated"));
  EXPECT_THAT(refusal({R"(/communicator={"kind": "hierarchical", "ranks_per_host": 2})"}),
              HasSubstr("communicator \"hierarchical\" cannot be simulated"));
  EXPECT_THAT(refusal({R"(/checkpoint={"kind": "save_and_resume", "after_step": 2})"}),
              HasSubstr("checkpoint"));
  EXPECT_THAT(refusal({R"(/faults=[{"kind": "kill", "rank": 1, "phase": "teardown"}])"}),
              HasSubstr("teardown"));
  EXPECT_THAT(refusal({R"(/faults=[{"kind": "kill", "rank": 1, "bucket": 99}])"}),
              HasSubstr("there is no bucket 99"));
}

// A fault of a rank or a step that is not simulated would be lost.
TEST(Modelled, FaultsOfRanksAndStepsThatAreNotThereAreRefused) {
  const auto plan =
      planned(kBase + Sets{fault(kStall + R"(, "step": 5)")}, "stragglers/named_compute.json");
  ASSERT_TRUE(plan);
  SimulatedAs as;
  as.steps = 4;
  const auto steps = job_of_plan(plan.value(), default_machine_model(), as);
  ASSERT_FALSE(steps);
  EXPECT_EQ(steps.errors()[0].pointer, "/faults/0/step");
  as.steps = 6;
  as.ranks = 1;
  const auto ranks = job_of_plan(plan.value(), default_machine_model(), as);
  ASSERT_FALSE(ranks);
  EXPECT_EQ(ranks.errors()[0].pointer, "/faults/0/rank");
}

}  // namespace

}  // namespace lockstep
