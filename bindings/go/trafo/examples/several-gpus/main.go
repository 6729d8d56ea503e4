// Command several-gpus trains a translation model on several GPUs, a goroutine for each.
//
//	go run ./examples/several-gpus RUN SOURCE.de TARGET.en [DEVICE ...]
//
// RUN is where the run goes, a DEVICE is cuda:0, cuda:1 or cpu, one for each rank; without any, all GPUs
// of this host. The same run may go on with another number of devices: its files have the same bits.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

type place struct {
	device trafo.Device
	index  int
}

// run trains with one rank on each device. Rank 0 writes the run directory.
func run(ctx context.Context, places []place, corpus *trafo.Corpus, config trafo.ModelConfig, options trafo.TrainerOptions) error {
	tokenizerOptions := trafo.DefaultTokenizerOptions()
	tokenizerOptions.Vocabulary, tokenizerOptions.SoftLimit = 8000, true
	tokenizer, err := corpus.TrainTokenizer(ctx, &tokenizerOptions)
	if err != nil {
		return err
	}
	defer tokenizer.Close()
	if config.Vocabulary, err = tokenizer.Vocabulary(); err != nil {
		return err
	}
	// GPUs of one process copy from each other. NCCL is for several processes.
	id, err := trafo.NewLocalGroup()
	if err != nil {
		return err
	}
	rank := func(number int) error {
		c, err := trafo.NewContext(trafo.WithDevice(places[number].device, places[number].index))
		if err != nil {
			return err
		}
		defer c.Close()
		model, err := c.NewModel(config, 1)
		if err != nil {
			return err
		}
		defer model.Close()
		group, err := trafo.JoinGroup(c, id, trafo.GroupOptions{Rank: number, Size: len(places)})
		if err != nil {
			return err
		}
		defer group.Close()
		own := options
		own.Group = group
		trainer, err := model.NewTrainer(ctx, tokenizer, corpus, nil, &own)
		if err != nil {
			return err
		}
		defer trainer.Close()
		_, err = trainer.Run(ctx, 0, func(event trafo.Event) error {
			if number == 0 && event.Kind == trafo.EventLog {
				fmt.Printf("update %d, loss %.3f\n", event.Update, event.Loss)
			}
			return nil
		})
		return err
	}
	errs := make([]error, len(places))
	var ranks sync.WaitGroup
	for number := range places {
		ranks.Add(1)
		go func() {
			defer ranks.Done()
			errs[number] = rank(number)
		}()
	}
	ranks.Wait()
	return errors.Join(append(errs, tokenizer.Save(options.RunDirectory))...)
}

func main() {
	if len(os.Args) < 4 {
		log.Fatal("several-gpus RUN SOURCE.de TARGET.en [DEVICE ...]")
	}
	var places []place
	for _, text := range os.Args[4:] {
		device, index, err := trafo.ParseDevice(text)
		if err != nil {
			log.Fatal(err)
		}
		places = append(places, place{device, index})
	}
	if len(places) == 0 {
		gpus, err := trafo.CUDADevices()
		if err != nil {
			log.Fatal(err)
		}
		for index := range gpus {
			places = append(places, place{trafo.CUDA, index})
		}
	}
	corpus, err := trafo.LoadCorpus(context.Background(), os.Args[2], os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	config, err := trafo.Preset("small")
	if err != nil {
		log.Fatal(err)
	}
	options := trafo.DefaultTrainerOptions()
	// As many parts of an update as GPUs of the first start; later starts may have fewer.
	options.Lanes, options.AfterUpdates, options.RunDirectory = len(places), 1000, os.Args[1]
	if err := run(context.Background(), places, corpus, config, options); err != nil {
		log.Fatal(err)
	}
}
