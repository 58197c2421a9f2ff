"""Prints the events of every session: python3 docs/subscribe.py SERVER NKEY_FILE [ENVIRONMENT] [LIMIT]"""
import asyncio, pathlib, sys
import nats
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from nats.js.api import ConsumerConfig, DeliverPolicy

CONTRACT = pathlib.Path(__file__).parent.parent / "proto/released/lab-v1.binpb"
server, nkey, env, limit = (sys.argv[1:] + ["dev", "0"][len(sys.argv) - 3 :])[:4]

pool = descriptor_pool.DescriptorPool()
for file in descriptor_pb2.FileDescriptorSet.FromString(CONTRACT.read_bytes()).file:
    pool.Add(file)
Event = message_factory.GetMessageClass(pool.FindMessageTypeByName("lab.v1.Event"))

async def main():
    bus = await nats.connect(server, nkeys_seed=nkey)
    config = ConsumerConfig(deliver_policy=DeliverPolicy.ALL)
    events = await bus.jetstream().subscribe(f"lab.v1.{env}.session.>", stream=f"LAB_{env.upper()}_PUB", ordered_consumer=True, config=config)
    seen = 0
    async for message in events.messages:
        print(json_format.MessageToJson(Event.FromString(message.data), indent=None), flush=True)
        seen += 1
        if seen == int(limit):
            return await bus.close()

asyncio.run(main())
