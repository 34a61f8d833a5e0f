#include <gtest/gtest.h>

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/sim/tools/explain/public_logs.h"

namespace lockstep {
namespace {

// A third lot of what jobs of strangers printed: stall reports, launchers of their own, Ray, and
// ranks that say little. The needed lines with the numbers of the thread.

std::string stalled(const std::string& tensors) {
  return "WARNING: One or more tensors were submitted to be reduced, gathered or broadcasted by "
         "subset of ranks and are waiting for remainder of ranks for more than 60 seconds.\n"
         "Stalled ops:\n" +
         tensors;
}

std::string bare_time_out(int64_t rank, int64_t line, const std::string& what, int64_t timeout_ms,
                          int64_t ran_ms) {
  return fmt::format(
      "[E ProcessGroupNCCL.cpp:{}] [Rank {}] Watchdog caught collective operation timeout: "
      "WorkNCCL(SeqNum={}, Timeout(ms)={}) ran for {} milliseconds before timing out.\n",
      line, rank, what, timeout_ms, ran_ms);
}

std::string time_out_of(int64_t rank, const std::string& what, int64_t timeout_ms, int64_t ran_ms) {
  return fmt::format("[rank{}]:", rank) + bare_time_out(rank, 616, what, timeout_ms, ran_ms);
}

std::string raised_behind(const std::string& before, const std::string& where,
                          const std::string& last) {
  return before + "Traceback (most recent call last):\n" + before + "  File \"" + where +
         "\", line 12, in step\n" + before + last + "\n";
}

std::string part_of(int64_t rank, const std::string& code, const std::string& traceback) {
  return fmt::format(
      "  time      : 2025-12-23_05:17:58\n  host      : node\n  rank      : {} (local_rank: "
      "{})\n  exitcode  : {}\n  error_file: <N/A>\n  traceback : {}\n",
      rank, rank, code, traceback);
}

std::string table_of(const std::vector<std::string>& others, const std::string& root) {
  std::string text = "Failures:\n";
  for (const std::string& other : others) text += "[1]:\n" + other;
  return text + "Root Cause (first observed failure):\n[0]:\n" + root + "=====\n";
}

// As @record has it in the table: two spaces before each line.
std::string recorded(const std::string& last) {
  return "Traceback (most recent call last):\n    File \"errors/__init__.py\", line 355, in "
         "wrapper\n      return f(*args, **kwargs)\n    File \"train.py\", line 16, in main\n"
         "      step()\n  " +
         last;
}

const char* kWorkerDied =
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker "
    "exit detail: Worker unexpectedly exits with a connection error code 2. End of file. There are "
    "some potential root causes. (1) The process is killed by SIGKILL by OOM killer.\n";

std::vector<PublicLog> stall_reports() {
  return {
      {"horovod/horovod#534", stalled("HorovodBroadcast_weights_0 [missing ranks: 0]\n"
                                      "HorovodBroadcast_biases_0 [missing ranks: 0]\n")},
      {"horovod/horovod#1012",
       "[1,0]<stderr>:[2019-04-13 13:55:31.858119: W horovod/common/operations.cc:588] "
       "HorovodBroadcast_dense_kernel_0 [missing ranks: 1]\n[1,0]<stderr>:Stalled "
       "ops:HorovodBroadcast_dense_1_bias_0 [missing ranks: 1]\n"},
      {"horovod/horovod#403", stalled("HorovodBroadcast_global_step_0 [missing ranks: 0, 2]\n")},
      {"wenet-e2e/wenet#2552",
       "2024/06/05 12:08:28 Rank 1 failed to pass monitoredBarrier in 1200000 ms\n"},
      {"QwenAudio/CosyVoice#1727",
       "2025-12-19 09:03:13,768 INFO Detected uneven workload distribution: Rank 5 successfully "
       "reached monitoredBarrier, but received errors while waiting for send/recv from rank 0.\n"},
      {"deepspeedai/DeepSpeed#4488",
       "Map (num_proc=14):  70%| 652383/930514 [6:39:53<4:31:33][E ProcessGroupGloo.cpp:138] Rank "
       "3 successfully reached monitoredBarrier, but received errors while waiting for "
       "send/recv from rank 0. Please check rank 0 logs for faulty rank.\n"},
      {"Intellindust-AI-Lab/DEIMv2#65",
       "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for "
       "recv operation to complete\n"},
      {"pytorch/pytorch#82091",
       raised_behind(
           "", "train.py",
           "RuntimeError: [2] is setting up NCCL communicator and retreiving ncclUniqueId from "
           "[0] via c10d key-value store by key '0', but store->get('0') got error: Socket "
           "Timeout")},
      {"NVIDIA-NeMo/Speech#14399",
       raised_behind("B-nemo-ft3/0 [default1]:[rank1]: ", "torch/distributed/distributed_c10d.py",
                     "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and "
                     "retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but "
                     "store->get('0') got error: wait timeout after 600000ms")},
  };
}

std::vector<PublicLog> time_outs() {
  std::string ace, gcd, trl, llama;
  for (const int64_t rank : {3, 2, 1}) {
    ace += bare_time_out(rank, 457, "1132079, OpType=ALLREDUCE, NumelIn=304640", 1800000, 1800558);
    gcd += bare_time_out(rank, 737, "56693, OpType=BROADCAST", 1800000, 1804371);
    trl += time_out_of(rank, "7930, OpType=_ALLGATHER_BASE, NumelIn=214016000", 600000, 600029);
  }
  for (const int64_t rank : {2, 0, 1})
    llama += time_out_of(rank, "1, OpType=ALLREDUCE, NumelIn=128", 600000, 600009);
  return {
      {"ai2cm/ace#348", ace},
      {"aioz-ai/GCD#6",
       gcd +
           raised_behind("", "train.py", "RuntimeError: NCCL communicator was aborted on rank 3.")},
      {"huggingface/trl#1726", trl},
      {"vllm-project/vllm#8978", llama},
      {"vllm-project/vllm#5484",
       "\x1b[36m(RayWorkerWrapper pid=4009)\x1b[0m " +
           time_out_of(1, "158046, OpType=GATHER, NumelIn=2867200, NumelOut=0", 600000, 600027)},
      {"vllm-project/vllm#3071",
       "(RayWorkerVllm pid=1394) " +
           bare_time_out(3, 475, "4967570, OpType=ALLREDUCE, NumelIn=73728", 1800000, 1800542)},
      {"vllm-project/vllm#23448",
       time_out_of(0, "5730, OpType=BROADCAST, NumelIn=3612672", 600000, 600009) +
           time_out_of(3, "5729, OpType=BROADCAST, NumelIn=3612672", 600000, 600008)},
      {"vllm-project/vllm#41160",
       "[rank3[]:[E508 07:35:59.440171617 ProcessGroupNCCL.cpp:733] Stack trace of the failed "
       "collective: \n"},
      {"thu-pacman/chitu#80",
       time_out_of(1, "3313, OpType=RECV, NumelIn=18, NumelOut=18", 600000, 600086) +
           "2025-03-27 17:31:11.084  sm228-a100-40g-23 server-0:72:294 [0] NCCL INFO [Service "
           "thread] Connection closed by localRank 0\n"},
      {"pytorch/pytorch#122850",
       "[rank0]:[E ProcessGroupNCCL.cpp:1582] [PG 0 Rank 0] Timeout at NCCL work: 2, last enqueued "
       "NCCL work: 2, last completed NCCL work: 1.\n[rank0]:[E ProcessGroupNCCL.cpp:1346] [PG 0 "
       "Rank 0] Received a timeout signal from this local rank and will start to dump the debug "
       "info. Last enqueued NCCL work: 2, last completed NCCL work: 1.\n"},
      {"OpenRLHF/OpenRLHF#624",
       "(ReferenceModelRayActor pid=5823, ip=10.164.227.153) [rank0]:[E ProcessGroupNCCL.cpp:616] "
       "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=17284, "
       "OpType=_ALLGATHER_BASE, Timeout(ms)=7200000) ran for 7200031 milliseconds before timing "
       "out. [repeated 14x across cluster]\n"},
      {"pytorch/pytorch#150916",
       "[rank1]:[E ProcessGroupNCCL.cpp:552] [Rank 1] Collective WorkNCCL(SeqNum=335, "
       "OpType=ALLREDUCE) raised the following async exception: NCCL error: remote process exited "
       "or there was a network error, NCCL version 2.21.5\n"},
      {"Lightning-AI/pytorch-lightning#20438",
       raised_behind(
           "[rank7]: ", "torch/distributed/distributed_c10d.py",
           "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, "
           "unhandled cuda error, NCCL version 2.17.1")},
      {"bghira/SimpleTuner#2712",
       raised_behind(
           "[rank7]: ", "train.py",
           "RuntimeError: Detected mismatch between collectives on ranks. Rank 7 is running "
           "collective: CollectiveFingerPrint(SequenceNumber=0, OpType=REDUCE), but Rank 0 is "
           "running collective: CollectiveFingerPrint(SequenceNumber=101OpType=ALLGATHER).")},
  };
}

std::vector<PublicLog> told_by_launchers() {
  const std::string crashed = "ERROR:composer.cli.launcher:Rank ";
  const std::string first = raised_behind(
      "", "horovod/runner/launch.py",
      "RuntimeError: Horovod detected that one or more processes exited with non-zero "
      "status, thus causing the job to be terminated. The first process to do so was:");
  std::string crashes;
  for (const int64_t rank : {3, 1, 2, 4})
    crashes += fmt::format("Process {} exit with status code 139.\n", rank);
  return {
      {"mosaicml/llm-foundry#258",
       crashed + "2 crashed with exit code -7.\nWaiting up to 30 seconds for all training "
                 "processes to terminate.\n",
       {2}},
      {"mosaicml/llm-foundry#1501",
       crashed + "0 crashed with exit code -11.\nERROR:composer.cli.launcher:Global rank 0 (PID "
                 "208865) exited with code -11\n",
       {0}},
      {"mosaicml/diffusion#140", crashed + "0 crashed with exit code -11.\n", {0}},
      {"mosaicml/examples#292", crashed + "1 crashed with exit code 1.\n"},
      {"NVIDIA/Megatron-LM#1880",
       "E1223 05:18:02.971000 3304089 torch/distributed/elastic/multiprocessing/api.py:882] failed "
       "(exitcode: -11) local_rank: 0 (pid: 3304209) of binary: python\n" +
           table_of({}, part_of(0, "-11 (pid: 3304209)", "Signal 11 (SIGSEGV) received")),
       {0}},
      // The form since PyTorch 2.12.
      {"pytorch/pytorch#175254",
       table_of({}, part_of(4, "-11 (pid: 5277) (SIGSEGV)", "Signal 11 (SIGSEGV) received")),
       {4}},
      {"Topdu/OpenOCR#71", table_of({part_of(1, "-7 (pid: 467398)", "Signal 7 (SIGBUS) received")},
                                    part_of(0, "-7 (pid: 467397)", "Signal 7 (SIGBUS) received"))},
      {"pytorch/pytorch#123070",
       table_of({part_of(1, "1 (pid: 2)", "none"), part_of(2, "1 (pid: 3)", "none")},
                part_of(0, "1 (pid: 1)", "none"))},
      {"pytorch/pytorch#148976",
       table_of(
           {},
           part_of(1, "1 (pid: 340055)",
                   recorded("RuntimeError: Detected mismatch between collectives on ranks. Rank "
                            "1 is running collective: CollectiveFingerPrint(SequenceNumber=1"
                            "OpType=BARRIER), but Rank 2 is running collective: "
                            "CollectiveFingerPrint(SequenceNumber=0OpType=BARRIER).")))},
      {"hpcaitech/ColossalAI#3556",
       "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -7) local_rank: 1 "
       "(pid: 5621) of binary: /usr/bin/python3.10\n"},
      {"deepspeedai/DeepSpeed#4000",
       "[2023-07-20 15:45:13,982] [ERROR] [launch.py:321:sigkill_handler] ['python', "
       "'--local_rank=1'] exits with return code = -7\n"},
      {"horovod/horovod#1678", crashes},
      {"horovod/horovod#1941",
       "[1,12]<stderr>:[profile-16:17086] *** Process received signal ***\n[1,12]<stderr>:"
       "[profile-16:17086] Signal: Segmentation fault (11)\n",
       {12}},
      {"horovod/horovod#3472",
       "Process 0 exit with status code 137.\n" + first + "Process name: 0\nExit code: 137\n",
       {0}},
      {"horovod/horovod#2484", first + "Process name: elastic-test-worker-1[0]\nExit code: 137\n"},
      {"NVIDIA-NeMo/Megatron-Bridge#3427",
       "[2026-04-20T03:25:23.011] error: *** STEP 1942963.1 ON n CANCELLED AT 2026-04-20T03:25:23 "
       "DUE TO TIME LIMIT ***\nsrun: error: n: task 3: Killed\n"},
      {"hiyouga/EasyR1#300",
       raised_behind(
           "", "main.py",
           "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this "
           "task.") +
           kWorkerDied},
      {"PeterGriffinJin/Search-R1#93",
       raised_behind(
           "[rank0]: ", "main_ppo.py",
           "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on "
           "memory.")},
      {"OpenPipe/ART#201",
       "ERROR 07-04 17:35:16 [multiproc_executor.py:140] Worker proc VllmWorker-1 died "
       "unexpectedly, shutting down executor.\n"},
      {"axolotl-ai-cloud/axolotl#3476",
       raised_behind("[rank1]: ", "train.py", "AttributeError: `e_score` is not an nn.Parameter"),
       {1}},
      {"pytorch/pytorch#113765",
       raised_behind(
           "[rank1]: ", "_optim_utils.py",
           "AssertionError: Rank 1 has different values for step: 8016.0. Other ranks: 7870.0")},
      // What the rank saw first, a lost connection, was its worker's.
      {"allenai/rslearn#517",
       raised_behind("[rank2]: ", "reductions.py",
                     "ConnectionResetError: [Errno 104] Connection reset by peer") +
           "[rank2]: The above exception was the direct cause of the following exception:\n" +
           raised_behind("[rank2]: ", "train.py",
                         "RuntimeError: DataLoader worker (pid(s) 1437132) exited unexpectedly"),
       {2}},
  };
}

RankSet candidates_of(const std::string& text) {
  return attribute_job(evidence_of(text)).candidates;
}

TEST(PublicHangs, StallReportsNameNobody) { expect_as_written(stall_reports()); }

TEST(PublicHangs, WhoIsMissingInAStallReportIsACandidate) {
  EXPECT_EQ(candidates_of(stall_reports().at(1).text), (RankSet{1}));
  EXPECT_EQ(candidates_of(stall_reports().at(2).text), (RankSet{0, 2}));
  EXPECT_TRUE(attribute_job(evidence_of(stall_reports().at(1).text)).victims.empty())
      << "who reports it is Horovod's coordinator, whether it waits or not";
}

TEST(PublicHangs, WatchdogsNameNobody) { expect_as_written(time_outs()); }

TEST(PublicHangs, LaunchersNameWhomASignalEnded) { expect_as_written(told_by_launchers()); }

TEST(PublicHangs, ThereAreFortyOfThem) {
  EXPECT_GE(stall_reports().size() + time_outs().size() + told_by_launchers().size(), 40U);
}

// A launcher that ends all others with SIGKILL is no witness against them.
TEST(PublicHangs, WhomComposersLauncherKilledIsNotNamed) {
  const std::string rank_1 = "ERROR:composer.cli.launcher:Rank 1 crashed with exit code -11.\n";
  const std::string rank_0 = "ERROR:composer.cli.launcher:Global rank 0 (PID 7) exited with code ";
  EXPECT_EQ(attribute_job(evidence_of(rank_1 + rank_0 + "-15\n")).guilty, (RankSet{1}));
  EXPECT_TRUE(attribute_job(evidence_of(rank_0 + "-9\n")).guilty.empty());
}

TEST(PublicHangs, TheTableOfTorchelasticTellsWhatWasRaised) {
  const auto root = [](const std::string& last) {
    return table_of({part_of(1, "-15 (pid: 5)", "Signal 15 (SIGTERM) received")},
                    part_of(2, "1 (pid: 6)", recorded(last)));
  };
  expect_as_written({{"made up", root("KeyError: 'a'"), {2}},
                     {"made up", root("torch.distributed.DistBackendError: NCCL error in: x")}});
}

TEST(PublicHangs, AShellCountsSignalsFrom128) {
  const std::string ends = "srun: error: n1: task 5: Exited with exit code ";
  expect_as_written({{"made up", ends + "139\n", {5}}, {"made up", ends + "137\n"}});
  expect_as_written({{"made up", "[1,3]<stderr>:Segmentation fault (core dumped)\n", {3}},
                     {"made up", "Process name: [[29973,1],2]\nExit code:    139\n", {2}}});
}

TEST(PublicHangs, ANodeThatSlurmLostEndsItsTasks) {
  expect_as_written({{"made up",
                      "srun: error: Node failure on nid001\nsrun: error: nid001: task 0: "
                      "Killed\n"}});
}

TEST(PublicHangs, ADeviceOfAMDIsAsOneOfNVIDIA) {
  expect_as_written(
      {{"made up",
        "[rank3]:[E ProcessGroupNCCL.cpp:1182] [Rank 3] NCCL watchdog thread terminated with "
        "exception: HIP error: an illegal memory access was encountered\n",
        {3}},
       {"made up", "[1,2]<stderr>:Memory access fault by GPU node-4 on address 0x7f1.\n", {2}},
       {"made up",
        "[1,5]<stderr>:terminate called after throwing an instance of 'std::bad_alloc'\n",
        {5}}});
}

}  // namespace
}  // namespace lockstep
