#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "scenarios/base/file.h"
#include "scenarios/checkpoint_file.h"
#include "scenarios/image_files.h"
#include "scenarios/layer_times.h"
#include "sim/des/machine_model.h"
#include "sim/join/door.h"
#include "sim/launch/protocol.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/kept_run.h"

// usage: fuzz_seeds FOLDER    writes inputs that this very version takes to FOLDER/TARGET/NAME:
// what cannot lie in the tree, since another version would refuse it.

namespace lockstep::fuzz {
namespace {

class Seeds {
 public:
  explicit Seeds(std::string folder) : folder_(std::move(folder)) {}
  void add(const std::string& target, const std::string& name, const std::string& bytes) {
    std::filesystem::create_directories(folder_ + "/" + target);
    std::ofstream(folder_ + "/" + target + "/" + name, std::ios::binary) << bytes;  // as it is
  }

 private:
  const std::string folder_;
};

void add_kept_runs(Seeds* seeds) {
  const KeptRun& kept = kept_run();
  seeds->add("kept_plan", "plan.json", kept.plan);
  seeds->add("kept_ends", "ends.json", kept.ends);
  seeds->add("evidence", "rank-0.json", kept.evidence);
  seeds->add("records", "rank-0", kept.records);
  seeds->add("records", "sparse", kept.records + growth(uint64_t{6} << 30));
  seeds->add(
      "recording", "recording",
      R"({"format": "lockstep_recording", "version": 1, "name": "a", "world_size": 2,
 "hash_every": 1, "hash": 2, "tensors": false})"
      "\n---\n"
      R"({"step": 1, "gradient": {"a": "b"}, "buffer": {}, "parameter": {"w": "c"}, "optimizer_state": {}}
{"step": 2, "end": true, "buffer": {}, "parameter": {"w": "c"}, "optimizer_state": {}}
)");
}

void add_texts(Seeds* seeds) {
  seeds->add("machine", "default.json",
             to_text(default_machine_model(), nlohmann::ordered_json::object()));
  const MemberIdentity member{"nonce", "about", "job", {0, 1}, "host a b", "here"};
  seeds->add("messages", "member", encode(member));
  seeds->add("messages", "members", encode(std::vector<MemberIdentity>{member, member}));
  ProcessEnd end{"rank-1", 1, 0, 77, -1, 9, false, false};
  end.state = ProcessState{'S', "futex", "futex_wait", "group/1", 0, {"pause+0x10", "main"}};
  seeds->add("messages", "end", encode(end));
  seeds->add("messages", "task", encode(WorkerTask{"rank", "", 1, "/tmp/a", {0, 1}, "127.0.0.1"}));
  seeds->add("member", "end", "end\t1\t0\t" + encode(end));
  seeds->add("member", "end_of_another",
             "end\t1\t0\t" + encode(ProcessEnd{"rank-0", 0, 0, 77, -1, 9, false, false}));
  seeds->add("door", "join", "join\t" + std::string(32, 'n') + "\t" + encode(member) + "\tproof");
  seeds->add("link", "hosts", "m1\t" + encode(std::vector<MemberIdentity>{member}));
}

void add_checkpoint(Seeds* seeds) {
  CheckpointFile file;
  file.step = 3;
  file.dtype = "float32";
  file.metric = 0.5;
  file.tensors.push_back({"parameter", "w", "float32", {2, 2}, std::string(16, '\1'), "cpu"});
  seeds->add("checkpoint", "checkpoint", encode_checkpoint(file));
}

void add_images(Seeds* seeds) {
  const std::string dir = folder() + "/images";
  std::filesystem::create_directories(dir);
  promised(static_cast<bool>(write_images("mnist", dir, 6, 1)), "images");
  promised(static_cast<bool>(write_images("cifar10", dir, 6, 1)), "images");
  const auto bytes_of = [&](const std::string& name) {
    return read_foreign_file(dir + "/" + name).value_or("");
  };
  const auto mnist = file_names("mnist", "train");
  seeds->add("images", "mnist", bytes_of(mnist[0]) + "\n---\n" + bytes_of(mnist[1]));
  seeds->add("images", "cifar10", bytes_of(file_names("cifar10", "test").front()));
}

int write_seeds(const std::string& folder) {
  Seeds seeds(folder);
  add_kept_runs(&seeds);
  add_texts(&seeds);
  add_checkpoint(&seeds);
  add_images(&seeds);
  return 0;
}

}  // namespace
}  // namespace lockstep::fuzz

int main(int argc, char** argv) {
  if (argc == 2) return lockstep::fuzz::write_seeds(argv[1]);
  std::fprintf(stderr, "usage: fuzz_seeds FOLDER\n");
  return 2;
}
