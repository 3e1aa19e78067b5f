// Begins rabbit-hole's own specs: what its authors prepare with rabbitmqctl is made over the API first, and the
// verdicts are written to a file.
package rabbithole

import (
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo"
	"github.com/onsi/ginkgo/reporters"
	. "github.com/onsi/gomega"
)

// RabbitMQ tells its API of events every five seconds.
func eventPropagation() time.Duration {
	pause, err := time.ParseDuration(os.Getenv("EVENT_PROPAGATION"))
	if err != nil {
		panic(err)
	}
	return pause
}

func TestRabbitHole(t *testing.T) {
	RegisterFailHandler(Fail)
	client, err := NewClient("http://127.0.0.1:15672", "guest", "guest")
	if err != nil {
		t.Fatal(err)
	}
	all := Permissions{Configure: ".*", Write: ".*", Read: ".*"}
	if _, err = client.PutVhost("rabbit/hole", VhostSettings{}); err != nil {
		t.Fatal(err)
	}
	if _, err = client.UpdatePermissionsIn("rabbit/hole", "guest", all); err != nil {
		t.Fatal(err)
	}
	if _, err = client.SetClusterName(ClusterName{Name: "rabbitmq@localhost"}); err != nil {
		t.Fatal(err)
	}
	verdicts := reporters.NewJUnitReporter(os.Getenv("VERDICTS"))
	RunSpecsWithDefaultAndCustomReporters(t, "rabbit-hole", []Reporter{verdicts})
}
