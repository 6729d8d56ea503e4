# Which tests of Google Test run with a sanitizer. Its build is ten times as slow, and it looks at memory and threads: tests that are long
# because they look at numbers find nothing more there. TRAFO_SANITIZE_ALL_FORMS runs all but the first list.
option(TRAFO_SANITIZE_ALL_FORMS "With a sanitizer, run the forms of a test that are only long, too" OFF)

# A gradcheck runs the op of a case a thousand times. Sanitizers have memory of their own for every byte.
set(TRAFO_NEVER_SANITIZED *.GradcheckInFloat64/* InteropMemoryTest.* Freezing.GradientsOfTheOthersAreTheSameBits Limits.Subwords TrainingTextDeathTest.NoMemoryIsAnError)

# Learning, statistics, numbers beside a reference, settings of files one by one.
set(TRAFO_LONG_WITH_A_SANITIZER
  *OptimizerStatesTest.TheFinalLoss* OptimizerStates.AveragesFollow* Optimizers.EachLearns *WordDistillation.AStudentLearns*
  *DpoTest.ARunLearns* *Options*.Learns* *Options.TheLossFalls* AverageTest.TheMetricsThatStop* TrainedAlignment.* Models/Sampling.DrawsWhat*
  *.GradientsInFloat64* Adapter.GradientsAre* ForeignLlamaTest.TheFilesCompute* InteropFormsTest.EverySetting* AdapterFiles.AnExportHas*
  InteropTokenizerTest.TheNormaliser* ImportTest.FactorsOf* ImportTest.LayersWithoutRotary* LongTextTraining.ACorpusOnDisk*
  JinjaTemplate.CopiesAndComparisons* *DeviceStepTest.SkipsTheLayers* GroupTest.RoundedLanesLearn* GroupTest.CheckpointsOfSeveralHosts* SixteenLaneSumsTest.*
  CopyLinks.SixteenRanksHaveTheBits* *LinkedGroup.TrainingHasTheBits*/Local TeacherRanks.CheckpointsAre*)

# Runs of many forms, each with the whole engine, and the forms that have every part of it once.
set(TRAFO_FORMS *RanksTest.*/* *ManyRanksTest.*/* *DpoRanks.*/* *ResumeTest.*/*)
set(TRAFO_SANITIZED_FORMS
  *RanksTest.ARunResumes*/Windows *RanksTest.ARunResumes*/SmoothedEightBit *RanksTest.Checkpoints*/LayerDrop *RanksTest.Checkpoints*/muon
  *RanksTest.Checkpoints*/CommunicationOfFiveLanes *ManyRanksTest.*/FewShards *DpoRanks.*/OfAnAdapter
  *ResumeTest.*/EncoderDecoderDelay1 *ResumeTest.*/DecoderLmDelay1EightBitSmoothed *ResumeTest.*/EncoderDecoderDelay2SmoothedBits8
  *ResumeTest.*/EncoderDecoderDelay2SmoothedBits8muon)

# The thread sanitizer: all ops, and what has threads beside those of the ops.
set(TRAFO_THREADED_unit_tests
  ThreadPool.* ParallelForRange.* FunctionRef.* Gemm.* ParallelChunks.* Batcher.* PrefetchingBatcher.* TokenizedCorpus* CorpusTest.*
  TextCorpus* TextFormsTest.* LongTextFiles.* LibraryReserveTest.* Tokenizer.*)
set(TRAFO_THREADED_train_tests
  Decode* Translator* BackgroundSave* SideWork* RunTest.* LongTextTraining.ARunResumes* *KillTest.*/Float32)
set(TRAFO_LONG_WITH_THREADS Tokenizer.FlippedBits* TextCorpusTest.CompressedTextIsCounted* Gemm.EdgeSizes*)
set(TRAFO_SANITIZED_FORMS_thread
  *RanksTest.Checkpoints*/EightBit *RanksTest.Checkpoints*/CommunicationOfFiveLanes *DpoRanks.*/OfAnAdapter
  *ResumeTest.*/DecoderLmDelay1EightBitSmoothed *ResumeTest.*/EncoderDecoderDelay2SmoothedBits8)

# The filters of Google Test for a program, one for each process that runs it.
function(trafo_sanitizer_filters program result)
  set(run "")
  set(left_out ${TRAFO_NEVER_SANITIZED})
  set(forms "")
  if(NOT TRAFO_SANITIZE_ALL_FORMS)
    list(APPEND left_out ${TRAFO_LONG_WITH_A_SANITIZER} ${TRAFO_FORMS})
    set(forms ${TRAFO_SANITIZED_FORMS})
    if(TRAFO_SANITIZE STREQUAL "thread")
      set(run ${TRAFO_THREADED_${program}})
      list(APPEND left_out ${TRAFO_LONG_WITH_THREADS})
      set(forms ${TRAFO_SANITIZED_FORMS_thread})
    endif()
  endif()
  list(JOIN run ":" run)
  list(JOIN left_out ":" left_out)
  list(JOIN forms ":" forms)
  set(filters "${run}-${left_out}")
  if(forms AND program MATCHES "^(train|dist)_tests$")
    list(APPEND filters "${forms}")
  endif()
  set(${result} ${filters} PARENT_SCOPE)
endfunction()
