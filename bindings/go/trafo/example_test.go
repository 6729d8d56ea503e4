package trafo_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func Example_gradients() {
	c, err := trafo.NewContext()
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	err = c.Scope(func() error {
		x, err := trafo.NewTensor(c, []float32{1, 2, 3}, 3)
		if err != nil {
			return err
		}
		if err := x.SetRequiresGrad(true); err != nil {
			return err
		}
		square, err := c.Multiply(x, x)
		if err != nil {
			return err
		}
		sum, err := c.Sum(square)
		if err != nil {
			return err
		}
		if err := sum.Backward(); err != nil {
			return err
		}
		gradient, err := x.Grad()
		if err != nil {
			return err
		}
		numbers, err := gradient.Float32s()
		fmt.Println(numbers)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: [2 4 6]
}

func ExampleError() {
	c, err := trafo.NewContext()
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	_, err = trafo.NewTensor(c, []float32{1, 2, 3}, 2, 2)
	fmt.Println(errors.Is(err, trafo.ErrShapeMismatch))
	fmt.Println(err)
	// Output:
	// true
	// trafo: SHAPE_MISMATCH in NewTensor: the shape [2 2] takes 4 elements, got 3
}

func ExampleContext_Gradcheck() {
	c, err := trafo.NewContext()
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	x, err := trafo.NewTensor(c, []float64{0.1, -0.2, 0.3, 0.4}, 2, 2)
	if err != nil {
		log.Fatal(err)
	}
	defer x.Close()
	result, err := c.Gradcheck(func(inputs []*trafo.Tensor) ([]*trafo.Tensor, error) {
		y, err := c.Tanh(inputs[0])
		return []*trafo.Tensor{y}, err
	}, nil, x)
	if err != nil {
		log.Fatal(err) // trafo.ErrGradcheck, if the gradients differ
	}
	fmt.Println(result.OK, result.Checked)
	// Output: true 4
}

func ExampleTrainer_Run() {
	corpus, err := trafo.NewCorpus([]string{"ein Haus", "ein Hund"}, []string{"a house", "a dog"})
	if err != nil {
		log.Fatal(err)
	}
	defer corpus.Close()
	tokenizerOptions := trafo.DefaultTokenizerOptions()
	tokenizerOptions.SoftLimit = true // so small a text has no 8000 subwords
	tokenizer, err := corpus.TrainTokenizer(context.Background(), &tokenizerOptions)
	if err != nil {
		log.Fatal(err)
	}
	defer tokenizer.Close()

	device, err := trafo.NewContext()
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	config, err := trafo.Preset("tiny")
	if err != nil {
		log.Fatal(err)
	}
	config.Vocabulary, err = tokenizer.Vocabulary()
	if err != nil {
		log.Fatal(err)
	}
	model, err := device.NewModel(config, 1)
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	trainer, err := model.NewTrainer(context.Background(), tokenizer, corpus, nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer trainer.Close()

	// Three updates, then until the time is over.
	reason, err := trainer.Run(context.Background(), 3, nil)
	fmt.Println(reason, err)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	reason, err = trainer.Run(ctx, 0, nil)
	fmt.Println(reason, errors.Is(err, trafo.ErrCancelled), errors.Is(err, context.DeadlineExceeded))
	// Output:
	// paused <nil>
	// cancelled true true
}
