// KEDA's scaler of RabbitMQ against a broker: each case prints `PASSED name` or `FAILED name: why`.
//
// usage: keda-trial HOST PORT HTTP_PORT [SKIPPED CASE]...
//
// The scaler is KEDA's own file, pkg/scalers/rabbitmq_scaler.go of github.com/kedacore/keda/v2: it makes the requests
// and reads the answers. What Kubernetes would be told is held against what is in the queues.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"keda-trial/around"
	"keda-trial/scalers"
)

// How long anything may take. RabbitMQ tells its API of changes every five seconds.
const long = 30 * time.Second

var host, port, httpPort string

type settings map[string]string

// A trigger of a ScaledObject.
type trigger struct {
	settings settings
	auth     settings
}

// One scaler's answer.
type answer struct {
	value    float64
	isActive bool
}

func main() {
	if len(os.Args) < 4 {
		fmt.Println("usage: keda-trial HOST PORT HTTP_PORT [SKIPPED CASE]...")
		os.Exit(2)
	}
	host, port, httpPort = os.Args[1], os.Args[2], os.Args[3]
	if err := prepare(); err != nil {
		fmt.Println("prepare:", err)
		os.Exit(1)
	}
	for _, one := range cases {
		if slices.Contains(os.Args[4:], one.name) {
			continue
		}
		if err := one.run(); err != nil {
			why := strings.Join(strings.Fields(err.Error()), " ")
			fmt.Printf("FAILED %s: %s\n", one.name, why)
		} else {
			fmt.Printf("PASSED %s\n", one.name)
		}
	}
}

func httpURL(path string) string {
	return fmt.Sprintf("http://guest:guest@%s:%s%s", host, httpPort, path)
}

func amqpURL(path string) string {
	return fmt.Sprintf("amqp://guest:guest@%s:%s%s", host, port, path)
}

func (it trigger) scaler() (scalers.Scaler, error) {
	return scalers.NewRabbitMQScaler(&around.ScalerConfig{
		ScalableObjectNamespace: "shop",
		ScalableObjectName:      "worker",
		GlobalHTTPTimeout:       10 * time.Second,
		TriggerMetadata:         it.settings,
		AuthParams:              it.auth,
	})
}

func ask(scaler scalers.Scaler) (answer, error) {
	metrics, isActive, err := scaler.GetMetricsAndActivity(context.Background(), "s0-rabbitmq")
	if err != nil {
		return answer{}, err
	}
	if len(metrics) != 1 {
		return answer{}, fmt.Errorf("%d metrics", len(metrics))
	}
	return answer{metrics[0].Value, isActive}, nil
}

// Asks one scaler again and again, as KEDA does, until the answer is right. An error is at once an error.
func (it trigger) becomes(isRight func(answer) bool, what string) error {
	scaler, err := it.scaler()
	if err != nil {
		return err
	}
	defer scaler.Close(context.Background())
	for until := time.Now().Add(long); ; time.Sleep(300 * time.Millisecond) {
		found, err := ask(scaler)
		if err != nil {
			return err
		}
		if isRight(found) {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("%v instead of %s", found, what)
		}
	}
}

func (it trigger) tells(value float64, isActive bool) error {
	expected := answer{value, isActive}
	return it.becomes(func(found answer) bool { return found == expected }, fmt.Sprint(expected))
}

// Expects an error that has these words.
func (it trigger) fails(words ...string) error {
	scaler, err := it.scaler()
	if err == nil {
		defer scaler.Close(context.Background())
		var found answer
		if found, err = ask(scaler); err == nil {
			return fmt.Errorf("%v instead of an error", found)
		}
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			return fmt.Errorf("no %q in %q", word, err)
		}
	}
	return nil
}

// Asks the broker's HTTP API as an administrator.
func api(method, path string, body any, into any) error {
	var text []byte
	var err error
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequest(method, httpURL("/api/"+path), bytes.NewReader(text))
	if err != nil {
		return err
	}
	said, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer said.Body.Close()
	told, err := io.ReadAll(said.Body)
	if err != nil || said.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s %s %v", method, path, said.Status, told, err)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(told, into)
}

type channel struct{ *amqp.Channel }

func open(vhost string) (channel, error) {
	connection, err := amqp.Dial(amqpURL("/" + url.PathEscape(vhost)))
	if err != nil {
		return channel{}, err
	}
	opened, err := connection.Channel()
	if err != nil {
		return channel{}, err
	}
	return channel{opened}, opened.Confirm(false)
}

// Declares a durable queue with so many messages, all of them confirmed.
func (it channel) fill(queue string, count int) error {
	if _, err := it.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		return err
	}
	for i := 0; i < count; i++ {
		if err := it.publish(queue); err != nil {
			return err
		}
	}
	return nil
}

func (it channel) publish(queue string) error {
	message := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte("order")}
	confirmed, err := it.PublishWithDeferredConfirm("", queue, false, false, message)
	if err != nil {
		return err
	}
	if !confirmed.Wait() {
		return fmt.Errorf("a message for %s was refused", queue)
	}
	return nil
}

// Takes so many messages and keeps them.
func (it channel) hold(queue string, count int) error {
	for i := 0; i < count; i++ {
		if _, ok, err := it.Get(queue, false); err != nil || !ok {
			return fmt.Errorf("%s has fewer than %d messages: %v", queue, count, err)
		}
	}
	return nil
}
