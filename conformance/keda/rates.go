package main

import (
	"fmt"
	"time"
)

// How fast a queue is filled, and emptied. A busy machine is slower.
const perSecond = 20

func isAbout(rate float64) bool { return rate > perSecond/4 && rate < perSecond*2 }

func rate(mode, queue string) trigger {
	return trigger{settings: settings{"host": httpURL("/%2F"), "queueName": queue, "mode": mode, "value": "1"}}
}

// A queue whose messages are taken and acknowledged as they come, in a connection of its own.
func flowing(queue string, check func() error) error {
	return filling(queue, func() error {
		consumer, err := open("/")
		if err != nil {
			return err
		}
		defer consumer.Close()
		messages, err := consumer.Consume(queue, "", false, false, false, false, nil)
		if err != nil {
			return err
		}
		go func() {
			for message := range messages {
				_ = message.Ack(false)
			}
		}()
		return check()
	})
}

// A queue that is filled meanwhile.
func filling(queue string, check func() error) error {
	publisher, err := open("/")
	if err != nil {
		return err
	}
	if err = publisher.fill(queue, 1); err != nil {
		return err
	}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		defer publisher.Close()
		every := time.NewTicker(time.Second / perSecond)
		defer every.Stop()
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			case <-every.C:
				if err := publisher.publish(queue); err != nil {
					stopped <- err
					return
				}
			}
		}
	}()
	err = check()
	close(stop)
	if trouble := <-stopped; trouble != nil {
		return trouble
	}
	return err
}

// While it is filled, and when that is over.
func publishing() error {
	it := rate("MessageRate", "filled")
	err := filling("filled", func() error {
		about := fmt.Sprintf("about %d a second", perSecond)
		return it.becomes(func(found answer) bool { return isAbout(found.value) && found.isActive }, about)
	})
	if err != nil {
		return err
	}
	// It stays active, since it has messages.
	return it.tells(0, true)
}

func delivering() error {
	it := rate("DeliverGetRate", "flowing")
	err := flowing("flowing", func() error {
		about := fmt.Sprintf("about %d a second", perSecond)
		return it.becomes(func(found answer) bool { return isAbout(found.value) && found.isActive }, about)
	})
	if err != nil {
		return err
	}
	return it.tells(0, false)
}

func ratio() error {
	return flowing("level", func() error {
		it := rate("PublishedToDeliveredRatio", "level").with("activationValue", "0.1")
		isLevel := func(found answer) bool { return found.value > 0.5 && found.value < 2 && found.isActive }
		return it.becomes(isLevel, "about 1")
	})
}

// What waits over what is taken each second.
func consumptionTime() error {
	const waiting = 300
	if err := root.fill("awaited", waiting); err != nil {
		return err
	}
	it := rate("ExpectedQueueConsumptionTime", "awaited")
	// Nobody takes anything: it cannot be said, and somebody is needed.
	if err := it.tells(0, true); err != nil {
		return err
	}
	consumer, err := open("/")
	if err != nil {
		return err
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		defer consumer.Close()
		every := time.NewTicker(time.Second / perSecond)
		defer every.Stop()
		for {
			select {
			case <-stop:
				return
			case <-every.C:
				_, _, _ = consumer.Get("awaited", true)
			}
		}
	}()
	isAbout := func(found answer) bool {
		return found.value > 1 && found.value < waiting/perSecond*4 && found.isActive
	}
	err = it.becomes(isAbout, fmt.Sprintf("at most about %d seconds", waiting/perSecond))
	close(stop)
	<-stopped
	return err
}

// As consumers work, KEDA is told of less, and at last that nobody is needed.
func drain() error {
	if err := root.fill("drained", 6); err != nil {
		return err
	}
	it := length(httpURL("/%2F"), "drained")
	for _, left := range []int{6, 4, 0} {
		for {
			state, err := root.QueueInspect("drained")
			if err != nil {
				return err
			}
			if state.Messages <= left {
				break
			}
			if message, ok, err := root.Get("drained", false); err != nil || !ok || message.Ack(false) != nil {
				return fmt.Errorf("a message could not be taken: %v", err)
			}
		}
		if err := it.tells(float64(left), left > 0); err != nil {
			return err
		}
	}
	return nil
}
