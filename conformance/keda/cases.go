package main

import (
	"context"
	"fmt"
	"net/url"
	"time"
)

const vhost = "shop/jobs"

// Names that a path cannot have as they are.
var oddNames = []string{"a/b", "100%", "Aufträge", "what?&=#;+"}

// Held open until the end: what it has taken stays unacknowledged.
var root, other channel

func prepare() (err error) {
	if err = api("PUT", "vhosts/"+url.PathEscape(vhost), nil, nil); err != nil {
		return err
	}
	all := settings{"configure": ".*", "write": ".*", "read": ".*"}
	if err = api("PUT", "permissions/"+url.PathEscape(vhost)+"/guest", all, nil); err != nil {
		return err
	}
	for name, tags := range map[string]string{"outsider": "management", "untagged": ""} {
		if err = api("PUT", "users/"+name, settings{"password": "secret", "tags": tags}, nil); err != nil {
			return err
		}
	}
	if root, err = open("/"); err != nil {
		return err
	}
	if other, err = open(vhost); err != nil {
		return err
	}
	for queue, count := range map[string]int{"orders": 8, "orders-eu": 2, "orders-us": 5, "mail": 1, "none": 0} {
		if err = root.fill(queue, count); err != nil {
			return err
		}
	}
	for i, queue := range oddNames {
		if err = root.fill(queue, i+1); err != nil {
			return err
		}
	}
	if err = root.fill("with space", 1); err != nil {
		return err
	}
	for queue, count := range map[string]int{"orders": 3, "orders-late": 4} {
		if err = other.fill(queue, count); err != nil {
			return err
		}
	}
	return root.hold("orders", 3)
}

func length(hostURL, queue string) trigger {
	return trigger{settings: settings{"host": hostURL, "queueName": queue, "mode": "QueueLength", "value": "1"}}
}

// The same with more settings: names and values in turn.
func (it trigger) with(more ...string) trigger {
	changed := settings{}
	for name, value := range it.settings {
		changed[name] = value
	}
	for i := 0; i < len(more); i += 2 {
		changed[more[i]] = more[i+1]
	}
	return trigger{changed, it.auth}
}

func (it trigger) login(user, password string) trigger {
	return trigger{it.settings, settings{"username": user, "password": password}}
}

func regex(operation string, more ...string) trigger {
	return length(httpURL("/%2F"), "^orders").with("useRegex", "true", "operation", operation).with(more...)
}

type trial struct {
	name string
	run  func() error
}

var cases = []trial{
	{"length of a queue", func() error { return length(httpURL("/%2F"), "orders").tells(8, true) }},
	{"length without what is unacknowledged", func() error {
		return length(httpURL("/%2F"), "orders").with("excludeUnacknowledged", "true").tells(5, true)
	}},
	{"an empty queue is not active", func() error { return length(httpURL("/%2F"), "none").tells(0, false) }},
	{"activation value", func() error {
		return length(httpURL("/%2F"), "orders").with("activationValue", "8").tells(8, false)
	}},
	{"no vhost in the address", func() error { return length(httpURL(""), "orders-us").tells(5, true) }},
	{"a slash and no vhost in the address", func() error { return length(httpURL("/"), "orders-us").tells(5, true) }},
	{"another vhost in the address", func() error {
		return length(httpURL("/shop%2Fjobs"), "orders").tells(3, true)
	}},
	{"another vhost by its name", func() error {
		return length(httpURL(""), "orders").with("vhostName", vhost).tells(3, true)
	}},
	{"login beside the address", func() error {
		return length(fmt.Sprintf("http://%s:%s", host, httpPort), "orders-eu").login("guest", "guest").tells(2, true)
	}},
	{"names that are escaped", func() error {
		for i, queue := range oddNames {
			if err := length(httpURL("/%2F"), queue).tells(float64(i+1), true); err != nil {
				return fmt.Errorf("%s: %w", queue, err)
			}
		}
		return nil
	}},
	// The scaler writes it as a plus, which is a plus in a path.
	{"a name with a space is not found", func() error {
		return length(httpURL("/%2F"), "with space").fails("404 Not Found")
	}},
	{"sum of several queues", func() error { return regex("sum").tells(15, true) }},
	{"average of several queues", func() error { return regex("avg").tells(5, true) }},
	{"maximum of several queues", func() error { return regex("max").tells(8, true) }},
	{"sum without what is unacknowledged", func() error {
		return regex("sum", "excludeUnacknowledged", "true").tells(12, true)
	}},
	{"sum in another vhost", func() error { return regex("sum", "vhostName", vhost).tells(7, true) }},
	{"a pattern with an end and a choice", func() error {
		return regex("sum", "queueName", "^orders-(eu|us)$").tells(7, true)
	}},
	{"a pattern with a plus", func() error { return regex("sum", "queueName", `^or+ders$`).tells(8, true) }},
	{"capitals do not matter", func() error { return regex("sum", "queueName", "^ORDERS-").tells(7, true) }},
	{"a pattern of no queue", func() error { return regex("sum", "queueName", "^nothing").tells(0, false) }},
	{"more queues than a page", func() error {
		return regex("sum", "pageSize", "2").fails("regex matches more queues than can be recovered at once")
	}},
	{"as many queues as a page", func() error { return regex("sum", "pageSize", "3").tells(15, true) }},
	{"a wrong pattern", func() error {
		return regex("sum", "queueName", "(").fails("400 Bad Request", "bad_request", "Pagination parameters are invalid")
	}},
	{"too large a page", func() error {
		return regex("sum", "pageSize", "501").fails("400 Bad Request", "invalid_pagination_parameters",
			"Invalid pagination parameters: page number 1, page size 501")
	}},
	{"a wrong password", func() error {
		return length(httpURL(""), "orders").login("guest", "wrong").fails("401 Unauthorized", "not_authorized",
			"Login failed")
	}},
	{"an unknown user", func() error {
		return length(httpURL(""), "orders").login("nobody", "secret").fails("401 Unauthorized", "not_authorized",
			"Login failed")
	}},
	{"a user without a tag", func() error {
		return length(httpURL(""), "orders").login("untagged", "secret").fails("401 Unauthorized", "not_authorised",
			"Not management user")
	}},
	{"a user without permissions in the vhost", func() error {
		return length(httpURL(""), "orders").login("outsider", "secret").fails("401 Unauthorized", "not_authorised",
			"User not authorised to access virtual host")
	}},
	{"no such queue", func() error {
		return length(httpURL("/%2F"), "missing").fails("404 Not Found", "Object Not Found", `"reason":"Not Found"`)
	}},
	{"no such vhost", func() error {
		return length(httpURL("/missing"), "orders").fails("404 Not Found", "Object Not Found", `"reason":"Not Found"`)
	}},
	{"a pattern in no such vhost", func() error {
		return regex("sum", "vhostName", "missing").fails("404 Not Found", "Object Not Found")
	}},
	{"rate of publishes", publishing},
	{"rate of deliveries", delivering},
	{"publishes for each delivery", ratio},
	{"time until a queue is empty", consumptionTime},
	{"length that goes down", drain},
	{"over AMQP, what is ready", func() error { return length(amqpURL("/"), "orders").tells(5, true) }},
	{"over AMQP, another vhost", func() error { return length(amqpURL("/shop%2Fjobs"), "orders-late").tells(4, true) }},
	{"over AMQP, another vhost by its name", func() error {
		return length(amqpURL("/"), "orders-late").with("vhostName", vhost).tells(4, true)
	}},
	{"over AMQP, an empty queue", func() error { return length(amqpURL("/"), "none").tells(0, false) }},
	{"over AMQP, login beside the address", func() error {
		return length(fmt.Sprintf("amqp://%s:%s/", host, port), "orders-eu").login("guest", "guest").tells(2, true)
	}},
	{"over AMQP, a wrong password", func() error {
		return length(amqpURL("/"), "orders").login("guest", "wrong").fails("403", "username or password not allowed")
	}},
	{"over AMQP, no such queue", func() error {
		return length(amqpURL("/"), "missing").fails("404", "NOT_FOUND - no queue 'missing' in vhost '/'")
	}},
	{"over AMQP, no such vhost", func() error { return length(amqpURL("/missing"), "orders").fails() }},
	{"over AMQP, the connection has the name of what is scaled", func() error {
		scaler, err := length(amqpURL("/"), "orders").scaler()
		if err != nil {
			return err
		}
		defer scaler.Close(context.Background())
		for until := time.Now().Add(long); ; time.Sleep(300 * time.Millisecond) {
			var connections []struct {
				Name string `json:"user_provided_name"`
			}
			if err := api("GET", "connections", nil, &connections); err != nil {
				return err
			}
			for _, connection := range connections {
				if connection.Name == "keda-shop-worker" {
					return nil
				}
			}
			if time.Now().After(until) {
				return fmt.Errorf("it is not among %v", connections)
			}
		}
	}},
}
