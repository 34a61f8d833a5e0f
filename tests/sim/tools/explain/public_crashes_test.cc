#include <gtest/gtest.h>

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/sim/tools/explain/public_logs.h"

namespace lockstep {
namespace {

// More of what jobs of strangers printed, of many launchers and backends: the needed lines, in the
// form in which the program writes them, with the numbers of the thread.

std::string work(int64_t rank, const std::string& what, int64_t timeout_ms, int64_t ran_ms) {
  return fmt::format(
      "[rank{}]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:632] [Rank {}] Watchdog caught "
      "collective operation timeout: WorkNCCL(SeqNum={}, Timeout(ms)={}) ran for {} milliseconds "
      "before timing out.\n",
      rank, rank, what, timeout_ms, ran_ms);
}

std::string status(int64_t rank, const std::string& group, int64_t sequence, int64_t enqueued,
                   int64_t completed) {
  return fmt::format(
      "[rank{}]:[E626 06:24:44.906457629 ProcessGroupNCCL.cpp:2268] [{} Rank {}]  failure detected "
      "by watchdog at work sequence id: {} PG status: last enqueued work: {}, last completed work: "
      "{}\n",
      rank, group, rank, sequence, enqueued, completed);
}

constexpr const char* kDefault = "PG ID 0 PG GUID 0(default_pg)";

// An uncaught exception, as PyTorch's hook writes it behind what others put before.
std::string raised(int64_t rank, const std::string& where, const std::string& last,
                   const std::string& before = "") {
  const std::string mine = fmt::format("{}[rank{}]: ", before, rank);
  return mine + "Traceback (most recent call last):\n" + mine + "  File \"" + where +
         "\", line 315, in step\n" + mine + last + "\n";
}

std::string table(int64_t rank, int64_t local, int64_t code, const std::string& time) {
  return fmt::format(
      "  time      : {}\n  rank      : {} (local_rank: {})\n  exitcode  : {} (pid: 2630)\n", time,
      rank, local, code);
}

std::string store_lost(int64_t rank, const std::string& how) {
  return fmt::format(
      "[rank{}]:[W624 12:52:07.296197118 ProcessGroupNCCL.cpp:1659] [PG ID 0 PG GUID 0 Rank {}] "
      "Failed to check the \"should dump\" flag on TCPStore, (maybe TCPStore server has shut down "
      "too early), with error: {}\n",
      rank, rank, how);
}

std::string heartbeat(int64_t rank, int64_t works) {
  return fmt::format(
      "[rank{}]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank {}] Heartbeat monitor timed out! Process "
      "will be terminated after dumping debug info. workMetaList_.size()={}\n",
      rank, rank, works);
}

std::string device_error(const std::string& before, const std::string& what) {
  return before + "Process group watchdog thread terminated with exception: CUDA error: " + what +
         "\n";
}

// What keeps an NPU's or an XPU's stream may be a peer, whatever raises it.
std::vector<PublicLog> other_devices() {
  const std::string end = "torch_npu/csrc/core/npu/NPUStream.cpp:435 NPU function error: ";
  return {
      {"Ascend/pytorch#62", raised(7, "contextlib.py",
                                   "RuntimeError: npuSynchronizeDevice:" + end +
                                       "aclrtSynchronizeDevice, error code is 507046")},
      {"vllm-project/vllm-ascend#1193",
       raised(8, "w8a8_dynamic.py",
              "RuntimeError: ACL stream synchronize failed, error code:507048",
              "(RayWorkerWrapper pid=11394, ip=10.0.1.4) ")},
      {"vllm-project/vllm-ascend#486",
       raised(1, "base_device_communicator.py",
              "RuntimeError: InnerRunOpApi:torch_npu/csrc/framework/OpParamMaker.cpp:281 OPS "
              "function error: HcclAllreduce, error code is 6")},
      {"vllm-project/vllm-ascend#2800",
       raised(1, "multiproc_executor.py",
              "RuntimeError: operator():" + end +
                  "c10_npu::acl::AclrtSynchronizeStreamWithTimeout(copy_stream), error code is "
                  "507048")},
      {"hiyouga/LlamaFactory#3839", raised(3, "torch/distributed/distributed_c10d.py",
                                           "RuntimeError: [ERROR] HCCL error in: "
                                           "torch_npu/csrc/distributed/ProcessGroupHCCL.cpp:64")},
      {"meta-pytorch/torchcomms#1174",
       raised(0, "train.py",
              "RuntimeError: Exception: comm aborted due to timeout, rank: 0, commHash: "
              "402823d129824690, desc: waitRequest for peer 3, result: commRemoteError")},
  };
}

std::vector<PublicLog> watchdogs() {
  std::string all_to_all, started, lagging;
  for (const int64_t rank : {7, 3, 6})
    all_to_all +=
        work(rank, "4486, OpType=ALLTOALL, NumelIn=46684160, NumelOut=46684160", 600000, 600013) +
        status(rank, "PG ID 2 PG GUID 9", 4486, 4489, 4485);
  for (const int64_t rank : {1, 2, 3, 6, 5, 4})
    started += work(rank, "4, OpType=BROADCAST, NumelIn=112, NumelOut=112", 1800000, 1800010);
  for (const int64_t rank : {2, 1})
    lagging +=
        work(rank, "4084, OpType=ALLREDUCE, NumelIn=4821568, NumelOut=4821568", 600000, 600077);
  return {
      {"verl-project/verl#1158", all_to_all},
      {"huggingface/open-r1#620", started},
      {"pytorch/pytorch#20630",
       lagging +
           work(3, "4084, OpType=BROADCAST, NumelIn=56623104, NumelOut=56623104", 600000, 600059) +
           "[rank3]:[E ProcessGroupNCCL.cpp:1537] [PG 0 Rank 3] Timeout at NCCL work: 4084, last "
           "enqueued NCCL work: 4084, last completed NCCL work: 4083.\n"},
      {"NVIDIA/nccl#1730",
       work(118, "2398459, OpType=ALLREDUCE, NumelIn=8652160, NumelOut=8652160", 1800000, 1800068) +
           status(118, kDefault, 2398459, 2398578, 2398458)},
      {"snowflakedb/ArcticTraining#219",
       status(5, kDefault, 120049, 120051, 120048) +
           "[rank3]:[E626 16:48:25.440250129 ProcessGroupNCCL.cpp:684] [Rank 3] Some NCCL "
           "operations "
           "have failed or timed out.\n"},
      // All of them joined: what keeps them, nobody here knows.
      {"hiyouga/LlamaFactory#9496", status(0, "PG ID 1 PG GUID 1", 730, 730, 729) +
                                        "[rank2]:[E1115 16:42:37.784743622 "
                                        "ProcessGroupNCCL.cpp:1936] Rank 2\n\t   - [0, 1, 2, 3, "
                                        "4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15] joined but "
                                        "didn't finish collective #730 (count "
                                        "from 1)\n"},
      // A terminal broke the line within the words.
      {"om-ai-lab/VLM-R1#257",
       "[rank6]:[E429 13:55:49.384372190 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) "
       "Rank 6] ProcessGroupNCCL'\ns watchdog got stuck for 480 seconds without making progress\n"},
      {"InternRobotics/AnySplat#61",
       "[E ProcessGroupNCCL.cpp:523] Watchdog caught collective operation timeout:\n"
       "WorkNCCL(OpType=ALLREDUCE, SeqNum=458) ran for 1800600 ms before timing out.\n"},
      {"facebookresearch/dinov2#447", heartbeat(0, 1) + heartbeat(1, 1)},
      {"Intellindust-AI-Lab/DEIM#105", heartbeat(1, 103) + heartbeat(0, 84) + heartbeat(2, 103)},
      {"MiniMax-AI/MiniMax-M1#14", store_lost(7, "Broken pipe")},
      {"sgl-project/sglang#20859", store_lost(8, "Connection reset by peer")},
      {"gpustack/gpustack#6019",
       store_lost(2, "Failed to recv, got 0 bytes. Connection was likely closed.")},
      {"NVIDIA/nccl#1438",
       "RuntimeError: NCCL communicator was aborted on rank 0.  Original reason for failure was: "
       "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=35582, "
       "OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1800366 milliseconds before timing out.\n"
       "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -6) local_rank: 1 "
       "(pid: 886322) of binary: python\n"},
  };
}

std::vector<PublicLog> launchers() {
  const std::string stopped =
      "Primary job  terminated normally, but 1 process returned\na non-zero exit code. Per "
      "user-direction, the job has been aborted.\n";
  return {
      {"horovod/horovod#1421", stopped + "  Process name: [[29973,1],0]\n  Exit code:    1\n"},
      {"Kay1794/Aware-of-the-history#2",
       stopped + "mpirun noticed that process rank 1 with PID 4711 on node n exited on signal 9 "
                 "(Killed).\n",
       {1}},
      {"horovod/horovod#3412",
       "[1,0]<stderr>:Traceback (most recent call last):\n[1,0]<stderr>:  File \"mpi_ops.py\", "
       "line "
       "123\n[1,0]<stderr>:horovod.common.exceptions.HorovodInternalError: Horovod has been shut "
       "down. This was caused by an exception on one of the ranks\n"},
      // Two nodes' tables, of which nothing says which came first.
      {"huggingface/accelerate#1519",
       table(3, 3, 1, "2023-06-03_22:45:52") + "Root Cause (first observed failure):\n" +
           table(0, 0, 1, "2023-06-03_22:45:52") + "Root Cause (first observed failure):\n" +
           table(4, 0, 1, "2023-06-03_22:45:01")},
      {"lmzpai/roboMamba#10",
       "E0325 20:57:27.620000 2606 torch/distributed/elastic/multiprocessing/api.py:869] failed "
       "(exitcode: -9) local_rank: 5 (pid: 2630) of binary: python\nRoot Cause (first observed "
       "failure):\n" +
           table(5, 5, -9, "2025-03-25_20:57:27"),
       {5}},
      // A progress bar stands before the words; of the table, the thread has nothing.
      {"yangjianxin1/Firefly#171",
       "Loading checkpoint shards:   0%| | 0/2 "
       "[00:00<?]WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 899505 "
       "closing signal SIGTERM\nERROR:torch.distributed.elastic.multiprocessing.api:failed "
       "(exitcode: -9) local_rank: 4 (pid: 899509) of binary: python\n"},
      {"nextflow-io/nextflow#5932",
       "slurmstepd: error: Detected 1 oom_kill event in StepId=11300781.0.\nsrun: error: "
       "sdumont6156: task 0: Out Of Memory\n"},
      {"hkust-nlp/simpleRL-reason#25",
       "Traceback (most recent call last):\n  File \"train_ppo_ray_box.py\", line 395, in "
       "<module>\nray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this "
       "task.\n"},
  };
}

std::vector<PublicLog> exceptions() {
  const std::string nan = "found NaN in local grad norm";
  return {
      {"pytorch/pytorch#4507",
       raised(2, "train.py",
              "RuntimeError: DataLoader worker (pid 23616) is killed by signal: Terminated.")},
      {"CompVis/latent-diffusion#76",
       raised(5, "train.py",
              "RuntimeError: DataLoader worker (pid 13772) is killed by signal: Killed."),
       {5}},
      // Who heeds SIGTERM leaves the others waiting; who sent it, the log does not say.
      {"Lightning-AI/pytorch-lightning#20806",
       raised(0, "training_epoch_loop.py",
              "lightning.pytorch.utilities.exceptions.SIGTERMException") +
           work(1, "22, OpType=ALLREDUCE, NumelIn=687, NumelOut=687", 600000, 600084)},
      // Rank 7 tells what ranks 0 and 1 raised.
      {"bghira/SimpleTuner#1880",
       raised(7, "train.py",
              "torch.distributed.checkpoint.api.CheckpointException: CheckpointException "
              "ranks:dict_keys([0, 1])") +
           "[rank7]: Traceback (most recent call last): (RANK 0)\n[rank7]:   File "
           "\"state_dict_loader.py\", line 250, in local_step\n[rank7]: AssertionError\n[rank7]: "
           "Traceback (most recent call last): (RANK 1)\n[rank7]:   File \"state_dict_loader.py\", "
           "line 250, in local_step\n[rank7]: AssertionError\n"},
      {"alibaba/Pai-Megatron-Patch#366",
       raised(11, "training.py",
              "AssertionError: Rank 11: " + nan +
                  " in backward pass before data-parallel communication collective. Device: 3"),
       {11}},
      {"NVIDIA-NeMo/Speech#14348",
       raised(2, "training.py",
              "RuntimeError: Rank 2, node n, device 2, iteration -1: Unexpected result nan "
              "(message='" +
                  nan +
                  " for bucket #0 in backward pass before data-parallel "
                  "communication collective')",
              "i.pretrain/0 [default2]:"),
       {2}},
      {"modelscope/ms-swift#3327",
       "[rank62]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 19.14 GiB. GPU 6 "
       "has "
       "a total capacity of 79.33 GiB of which 8.35 GiB is free.\n",
       {62}},
      {"pytorch/pytorch#113128",
       device_error("[default0]:[rank12]:[E817 17:40:34.227531918 ProcessGroupNCCL.cpp:1515] [PG 0 "
                    "(default_pg) Rank 12] ",
                    "uncorrectable ECC error encountered"),
       {12}},
      {"kohya-ss/sd-scripts#1434",
       "[E ProcessGroupNCCL.cpp:916] [Rank 1] NCCL watchdog thread terminated with exception: CUDA "
       "error: uncorrectable ECC error encountered\n"},
      {"meta-pytorch/gpt-fast#98",
       "  what():  [Rank 3] NCCL watchdog thread terminated with exception: CUDA error: an illegal "
       "memory access was encountered\n"},
  };
}

TEST(PublicCrashes, WhatAStreamOfAnotherDeviceWaitsForIsNotKnown) {
  expect_as_written(other_devices());
}

TEST(PublicCrashes, WatchdogsNameNobody) { expect_as_written(watchdogs()); }

TEST(PublicCrashes, LaunchersNameWhomASignalEnded) { expect_as_written(launchers()); }

TEST(PublicCrashes, ExceptionsNameWhoRaisedWhatNoPeerCaused) { expect_as_written(exceptions()); }

TEST(PublicCrashes, ThereAreThirtyOfThem) {
  EXPECT_GE(other_devices().size() + watchdogs().size() + launchers().size() + exceptions().size(),
            30U);
}

// Of exceptions that may be of peers, and of those that end a rank because of another one.
TEST(PublicCrashes, ExceptionsOfOthersAccuseNobody) {
  for (const char* last :
       {"httpx.ReadTimeout",
        "aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected",
        "zmq.error.Again: Resource temporarily unavailable",
        "grpc._channel._InactiveRpcError: <_InactiveRpcError of RPC that terminated with:",
        "nvidia_resiliency_ext.inprocess.exception.RankShouldRestart",
        "horovod.common.exceptions.HostsUpdatedInterrupt",
        "accelerate.utils.operations.DistributedOperationException: Cannot apply desired operation "
        "due to shape mismatches. All shapes across devices must be valid.",
        "RuntimeError: Engine core initialization failed. See root cause above.",
        "RuntimeError: oneCCL: ze_handle_manager.cpp:226 get_ptr: EXCEPTION: unknown memory type",
        "RuntimeError: UCX-NOCONNECT endpoint is unreachable"}) {
    const FlightFinding found = attribute_job(evidence_of(raised(0, "train.py", last)));
    EXPECT_FALSE(found.decided) << last;
    EXPECT_TRUE(found.guilty.empty()) << last;
  }
}

TEST(PublicCrashes, WhatACheckpointTellsOfOneRankIsThatRanks) {
  const std::string told =
      raised(0, "train.py",
             "torch.distributed.checkpoint.api.CheckpointException: CheckpointException "
             "ranks:dict_keys([3])") +
      "[rank0]: Traceback (most recent call last): (RANK 3)\n[rank0]:   File \"filesystem.py\", "
      "line "
      "250, in write\n[rank0]: OSError: [Errno 28] No space left on device\n";
  expect_as_written({{"made up", told, {3}}});
}

// The default backend of PyTorch 2.15 and torchcomms.
TEST(PublicCrashes, NewerWatchdogsAreOfThoseThatWait) {
  std::string text;
  for (const int64_t rank : {0, 1, 3})
    text += fmt::format(
        "[rank{}]:[E928 10:00:00.858931807 ProcessGroupNCCL.cpp:226] [TC][rank={}][name=0] "
        "Aborting "
        "process on rank {}: timeout - timeout watchdog detected operation timeout\n",
        rank, rank, rank);
  const FlightFinding found = attribute_job(evidence_of(text));
  EXPECT_FALSE(found.decided);
  EXPECT_EQ(found.victims, (RankSet{0, 1, 3}));
}

TEST(PublicCrashes, HorovodrunSaysWhoseALineIs) {
  expect_as_written(
      {{"made up",
        "[2]<stderr>:Traceback (most recent call last):\n[2]<stderr>:  File \"train.py\", line "
        "5\n[2]<stderr>:ValueError: bad sample\n[0]<stderr>:Traceback (most recent call "
        "last):\n[0]<stderr>:  File \"mpi_ops.py\", line "
        "123\n[0]<stderr>:horovod.common.exceptions.HorovodInternalError: Horovod has been shut "
        "down.\nProcess 2 exit with status code 1.\nProcess 0 exit with status code 1.\n",
        {2}}});
}

// Launchers append to the log of the run before.
TEST(PublicCrashes, OfSeveralRunsTheLastCounts) {
  const std::string begins =
      "W0626 torch/distributed/run.py:774] Setting OMP_NUM_THREADS environment variable for each "
      "process to be 1 in default\n";
  const std::string first = begins + raised(1, "train.py", "ValueError: first run");
  expect_as_written(
      {{"made up", first, {1}},
       {"made up", first + begins + raised(2, "train.py", "ValueError: second run"), {2}},
       {"made up", first + begins}});
}

}  // namespace
}  // namespace lockstep
