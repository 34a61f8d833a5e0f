#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "scenarios/base/random_bytes.h"
#include "sim/join/environment.h"
#include "sim/join/wire.h"
#include "sim/launch/run_files.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

const Variables kTorchrun = {{"RANK", "5"},         {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},   {"LOCAL_WORLD_SIZE", "4"},
                             {"GROUP_RANK", "1"},   {"GROUP_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "29500"}};
const Variables kMpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                        {"OMPI_COMM_WORLD_SIZE", "3"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                        {"PMIX_NAMESPACE", "prterun-1@2"}};
const Variables kSlurm = {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "0"},
                          {"SLURM_NODEID", "1"}, {"SLURM_NNODES", "2"}, {"SLURM_JOB_ID", "7"},
                          {"SLURM_STEP_ID", "0"}};

Variables together(std::initializer_list<Variables> all) {
  Variables sum;
  for (const Variables& one : all) sum.insert(one.begin(), one.end());
  return sum;
}

Variables with(Variables variables, const char* name, const char* value) {
  variables[name] = value;
  return variables;
}

struct Case {
  const char* what;
  Variables variables;
  const char* launcher;
  const char* detected;
  int64_t task, tasks;
  bool one_host;
};

class Detected : public testing::TestWithParam<Case> {};

TEST_P(Detected, IsTheFirstThatIsComplete) {
  const Case& c = GetParam();
  const auto placement = detect_placement(c.variables, c.launcher);
  ASSERT_TRUE(placement) << placement.errors().front().message;
  EXPECT_EQ(placement.value().launcher, c.detected);
  EXPECT_EQ(placement.value().task, c.task);
  EXPECT_EQ(placement.value().tasks, c.tasks);
  EXPECT_EQ(placement.value().one_host, c.one_host);
}

INSTANTIATE_TEST_SUITE_P(
    Environment, Detected,
    testing::Values(
        Case{"nothing", {}, "auto", "none", 0, 1, true},
        Case{"torchrun", kTorchrun, "auto", "torchrun", 5, 8, false},
        Case{"mpi", kMpi, "auto", "mpi", 2, 3, true},
        Case{"mpi_counts_locally_in_another_order", with(kMpi, "OMPI_COMM_WORLD_RANK", "1"), "auto",
             "mpi", 1, 3, true},
        Case{"slurm", kSlurm, "auto", "slurm", 1, 2, false},
        Case{"torchrun_below_srun", together({kTorchrun, kSlurm}), "auto", "torchrun", 5, 8, false},
        Case{"mpi_below_srun", together({kMpi, kSlurm}), "auto", "mpi", 2, 3, true},
        Case{"all", together({kTorchrun, kMpi, kSlurm}), "auto", "torchrun", 5, 8, false},
        Case{"chosen_slurm", together({kTorchrun, kMpi, kSlurm}), "slurm", "slurm", 1, 2, false},
        Case{"chosen_mpi", together({kTorchrun, kMpi, kSlurm}), "mpi", "mpi", 2, 3, true},
        Case{"chosen_none", together({kTorchrun, kMpi, kSlurm}), "none", "none", 0, 1, true},
        Case{"world_size_alone", with(kMpi, "WORLD_SIZE", "9"), "auto", "mpi", 2, 3, true},
        Case{"batch_script",
             {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}},
             "auto",
             "none",
             0,
             1,
             true},
        Case{"others_are_not_looked_at", with(kTorchrun, "SLURM_PROCID", "x"), "auto", "torchrun",
             5, 8, false}),
    [](const auto& tested) { return tested.param.what; });

struct BadCase {
  const char* what;
  Variables variables;
  const char* launcher;
  const char* message;
};

class Contradiction : public testing::TestWithParam<BadCase> {};

TEST_P(Contradiction, NamesBothValues) {
  const BadCase& c = GetParam();
  const auto placement = detect_placement(c.variables, c.launcher);
  ASSERT_FALSE(placement);
  EXPECT_THAT(placement.errors().front().message, HasSubstr(c.message));
}

INSTANTIATE_TEST_SUITE_P(
    Environment, Contradiction,
    testing::Values(
        BadCase{"rank", with(kTorchrun, "RANK", "8"), "auto", "RANK=8 contradicts WORLD_SIZE=8"},
        BadCase{"local", with(kTorchrun, "LOCAL_RANK", "4"), "auto",
                "LOCAL_RANK=4 contradicts LOCAL_WORLD_SIZE=4"},
        BadCase{"local_size", with(kTorchrun, "LOCAL_WORLD_SIZE", "9"), "auto",
                "LOCAL_WORLD_SIZE=9 contradicts WORLD_SIZE=8"},
        BadCase{"group", with(kTorchrun, "GROUP_RANK", "2"), "auto",
                "GROUP_RANK=2 contradicts GROUP_WORLD_SIZE=2"},
        BadCase{"mpi", with(kMpi, "OMPI_COMM_WORLD_SIZE", "2"), "auto",
                "OMPI_COMM_WORLD_RANK=2 contradicts OMPI_COMM_WORLD_SIZE=2"},
        BadCase{"slurm", with(kSlurm, "SLURM_NTASKS", "1"), "auto",
                "SLURM_PROCID=1 contradicts SLURM_NTASKS=1"},
        BadCase{"slurm_local", with(kSlurm, "SLURM_LOCALID", "2"), "auto",
                "SLURM_LOCALID=2 contradicts SLURM_NTASKS=2"},
        BadCase{"no_number", with(kTorchrun, "RANK", "two"), "auto", "RANK is \"two\""},
        BadCase{"port", with(kTorchrun, "MASTER_PORT", "70000"), "auto",
                "MASTER_PORT is \"70000\""},
        BadCase{"absent", kMpi, "slurm", "SLURM_PROCID and SLURM_STEP_NUM_TASKS are not both set"}),
    [](const auto& tested) { return tested.param.what; });

TEST(Environment, TellsJobsApart) {
  EXPECT_EQ(detect_placement(kMpi, "auto").value().job, "mpi-prterun-1_2");
  EXPECT_EQ(detect_placement(kSlurm, "auto").value().job, "slurm-7-0");
  const auto first = detect_placement(kTorchrun, "auto").value();
  const auto again = detect_placement(with(kTorchrun, "TORCHELASTIC_RESTART_COUNT", "1"), "auto");
  EXPECT_NE(first.job, again.value().job);
}

TEST(Environment, AnAgentMayHoldThePort) {
  EXPECT_FALSE(detect_placement(kTorchrun, "auto").value().port_held);
  const auto held = with(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "True");
  EXPECT_TRUE(detect_placement(held, "auto").value().port_held);
}

TEST(Environment, RecordsWhatChangesARun) {
  const Variables all = {{"OMP_NUM_THREADS", "1"},
                         {"GLOO_SOCKET_IFNAME", "eth0"},
                         {"NCCL_DEBUG", "INFO"},
                         {"HOME", "/root"},
                         {"OMPI_COMM_WORLD_RANK", "1"}};
  const Variables recorded = recorded_variables(all);
  EXPECT_EQ(recorded.size(), 3u);
  EXPECT_EQ(recorded.count("HOME"), 0u);
}

constexpr const char* kKey = "0123456789abcdef";

std::string file_with(const std::string& text, mode_t mode) {
  const std::string path = testing::TempDir() + "/job-key-" + to_hex(random_bytes(4));
  write_file(path, text);
  ::chmod(path.c_str(), mode);
  return path;
}

Placement by(const char* launcher) {
  Placement placement;
  placement.launcher = launcher;
  return placement;
}

TEST(JobKey, IsTheFirstThatIsThere) {
  const std::string file = file_with("from the file of the option\n", 0600);
  const Variables all = {{"LOCKSTEP_JOB_KEY", "from the environment"},
                         {"LOCKSTEP_JOB_KEY_FILE", file_with("from the file named there", 0400)},
                         {"OMPI_MCA_orte_precondition_transports", "0011-from-the-launcher"}};
  EXPECT_EQ(find_job_key(all, by("mpi"), file).value().bytes, "from the file of the option");
  EXPECT_EQ(find_job_key(all, by("mpi"), "").value().bytes, "from the file named there");
  Variables fewer = all;
  fewer.erase("LOCKSTEP_JOB_KEY_FILE");
  EXPECT_EQ(find_job_key(fewer, by("mpi"), "").value().bytes, "from the environment");
  fewer.erase("LOCKSTEP_JOB_KEY");
  EXPECT_EQ(find_job_key(fewer, by("mpi"), "").value().bytes, "0011-from-the-launcher");
  for (const char* launcher : {"torchrun", "slurm", "none"})
    EXPECT_EQ(find_job_key(fewer, by(launcher), "").value().bytes, "") << launcher;
}

TEST(JobKey, BadOnesAreRefused) {
  for (const auto& [variables, file, why] :
       std::vector<std::tuple<Variables, std::string, std::string>>{
           {{{"LOCKSTEP_JOB_KEY", ""}}, "", "LOCKSTEP_JOB_KEY holds a key of 0 bytes"},
           {{{"LOCKSTEP_JOB_KEY", "short"}}, "", "holds a key of 5 bytes"},
           {{{"LOCKSTEP_JOB_KEY", std::string(5000, 'k')}}, "", "holds a key of 5000 bytes"},
           {{{"LOCKSTEP_JOB_KEY_FILE", "/nowhere/key"}}, "", "No such file"},
           {{}, file_with(std::string(kKey) + "\n", 0640), "other users have access to it"},
           {{}, file_with("", 0600), "holds a key of 0 bytes"},
           {{}, file_with(std::string(9000, 'k'), 0600), "bytes"},
           {{}, "/dev/zero", "no regular file"},
           {{}, testing::TempDir(), "no regular file"}}) {
    const auto key = find_job_key(variables, by("none"), file);
    ASSERT_FALSE(key) << why;
    EXPECT_THAT(key.errors().front().message, testing::HasSubstr(why));
    EXPECT_THAT(key.errors().front().message, testing::Not(testing::HasSubstr("kkkk")));
  }
}

TEST(JobKey, ANewOneIsNew) {
  EXPECT_EQ(new_job_key().size(), 64u);
  EXPECT_NE(new_job_key(), new_job_key());
}

// RFC 4231, test case 2.
TEST(Secret, IsHmacSha256) {
  EXPECT_EQ(to_hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(Secret, RestsOnEachKeyAndWithoutOneOnTheIdentity) {
  const auto secret = [](const char* job, const char* identity, const char* notice) {
    return rendezvous_secret({job, identity}, notice);
  };
  EXPECT_EQ(secret("key", "a", ""), secret("key", "b", ""));
  EXPECT_NE(secret("key", "a", ""), secret("yek", "a", ""));
  EXPECT_NE(secret("key", "a", ""), secret("key", "a", "notice"));
  EXPECT_NE(secret("", "a", "key"), secret("key", "a", ""));
  EXPECT_NE(secret("", "a", ""), secret("", "b", ""));
  const ConnectionKeys keys = connection_keys("s", "c", "m");
  EXPECT_NE(keys.to_coordinator, keys.to_member);
  EXPECT_NE(keys.to_member, connection_keys("s", "m", "c").to_member);
}

}  // namespace

}  // namespace lockstep
