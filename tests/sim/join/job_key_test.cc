#include "sim/join/job_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "sim/join/secret.h"
#include "sim/launch/files.h"

namespace lockstep {
namespace {

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
