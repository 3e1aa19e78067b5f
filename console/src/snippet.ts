// Programs that publish and consume one message, in the languages that most clients are written in.

export interface Target {
  host: string;
  port: number;
  user: string;
  vhost: string;
  queue: string;
}

export const LANGUAGES = [
  ["pika", "Python (pika)"],
  ["go", "Go"],
  ["node", "Node.js"],
  ["java", "Java"],
] as const;

export type Language = (typeof LANGUAGES)[number][0];

/** The password is for the reader to fill in. */
function address({ host, port, user, vhost }: Target): string {
  return `amqp://${encodeURIComponent(user)}:PASSWORD@${host}:${port}/${encodeURIComponent(vhost)}`;
}

const TEXTS: Record<Language, (url: string, queue: string) => string> = {
  pika: (url, queue) => `# pip install pika
import pika

connection = pika.BlockingConnection(pika.URLParameters(${url}))
channel = connection.channel()
channel.queue_declare(${queue}, durable=True, arguments={"x-queue-type": "quorum"})
channel.confirm_delivery()
channel.basic_publish("", ${queue}, b"hello", pika.BasicProperties(delivery_mode=2))

for method, properties, body in channel.consume(${queue}, inactivity_timeout=2):
    if method is None:
        break
    print(body)
    channel.basic_ack(method.delivery_tag)
`,
  go: (url, queue) => `// go get github.com/rabbitmq/amqp091-go
package main

import (
	"log"

	amqp "github.com/rabbitmq/amqp091-go"
)

func main() {
	connection, err := amqp.Dial(${url})
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	channel, err := connection.Channel()
	if err != nil {
		log.Fatal(err)
	}
	arguments := amqp.Table{"x-queue-type": "quorum"}
	if _, err := channel.QueueDeclare(${queue}, true, false, false, false, arguments); err != nil {
		log.Fatal(err)
	}
	message := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte("hello")}
	if err := channel.Publish("", ${queue}, false, false, message); err != nil {
		log.Fatal(err)
	}
	deliveries, err := channel.Consume(${queue}, "", false, false, false, false, nil)
	if err != nil {
		log.Fatal(err)
	}
	delivery := <-deliveries
	log.Printf("%s", delivery.Body)
	delivery.Ack(false)
}
`,
  node: (url, queue) => `// npm install amqplib
import amqp from "amqplib";

const connection = await amqp.connect(${url});
const channel = await connection.createConfirmChannel();
await channel.assertQueue(${queue}, { durable: true, arguments: { "x-queue-type": "quorum" } });
channel.sendToQueue(${queue}, Buffer.from("hello"), { persistent: true });
await channel.waitForConfirms();
await channel.consume(${queue}, (message) => {
  console.log(message.content.toString());
  channel.ack(message);
});
`,
  java: (url, queue) => `// com.rabbitmq:amqp-client
import com.rabbitmq.client.*;
import java.util.Map;

public class Hello {
    public static void main(String[] arguments) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(${url});
        Connection connection = factory.newConnection();
        Channel channel = connection.createChannel();
        channel.queueDeclare(${queue}, true, false, false, Map.of("x-queue-type", "quorum"));
        channel.confirmSelect();
        channel.basicPublish("", ${queue}, MessageProperties.PERSISTENT_BASIC, "hello".getBytes());
        channel.waitForConfirmsOrDie(5000);
        channel.basicConsume(${queue}, false, (tag, delivery) -> {
            System.out.println(new String(delivery.getBody()));
            channel.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
        }, tag -> {});
    }
}
`,
};

/** Names are quoted as JSON quotes them, which all four languages read. */
export function snippet(language: Language, target: Target): string {
  return TEXTS[language](JSON.stringify(address(target)), JSON.stringify(target.queue));
}
