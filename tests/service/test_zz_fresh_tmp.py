import json, time, base64
import pytest

def raw(t, text, key=None):
    h={"Content-Type":"application/json"}
    if key: h["Idempotency-Key"]=key
    return t.client.post(f"{t.url}/commits", content=text, headers=h)

@pytest.mark.parametrize("what", ["predicate","user-metadata","engine-info","operation","param","metric","path","pv","tags","stats","appid"])
def test_surrogates(filled, what):
    add = filled.write_file("n1.parquet", [1,2])
    body = {"operation":"WRITE","read-version":1,"adds":[add],"operation-parameters":{}}
    bad="@@BAD@@"
    if what in("predicate","user-metadata","engine-info","operation"): body[what]=bad
    if what=="param": body["operation-parameters"]={"x":bad}
    if what=="metric": body["operation-metrics"]={"x"+bad:1}
    if what=="path": add["path"]=bad
    if what=="pv": add["partitionValues"]={bad:"1"}
    if what=="tags": add["tags"]={"x":bad}
    if what=="stats": add["stats"]='{"numRecords":2,"minValues":{"name":"%s"}}'%bad
    if what=="appid": body["app-transaction"]={"app-id":bad,"version":1}
    r=raw(filled, json.dumps(body).replace(bad,"\\ud800"))
    print("RES", what, r.status_code, r.text[:200])
    assert r.status_code!=500
    # table is fine afterwards
    s=filled.client.get(filled.url+"/snapshot"); assert s.status_code==200,s.text
    p=filled.client.post(filled.url+"/plan",json={}); assert p.status_code==200,p.text
    r2=filled.append(filled.write_file("n2.parquet",[3])); assert r2.status_code==200,r2.text

@pytest.mark.parametrize("stats", ['{"numRecords":2,"minValues":{"id":1e999},"maxValues":{"id":2}}','{"numRecords":2,"minValues":{"id":"x"},"maxValues":{"id":[]}}','{"numRecords":2,"minValues":[],"maxValues":3}','{"numRecords":99999999999999999999999}','{"numRecords":2,"nullCount":{"id":-1}}','{"numRecords":2,"nullCount":{"id":{"a":1}},"minValues":{"id":{"a":1}}}','{"numRecords":2, "minValues":{"id":NaN}}','{"numRecords":2, "numRecords":3}', '{"numRecords":2.0}','{"numRecords":9223372036854775808}', '{"numRecords":2,"minValues":{"id":123456789012345678901234567890}}', '[]', '{"numRecords":2,"tightBounds":"x"}', '{"numRecords":9223372036854775807}'])
def test_stats(filled, stats):
    add = filled.write_file("n1.parquet", [1,2]); add["stats"]=stats
    r=filled.append(add, read_version=1)
    print("RES",r.status_code,r.text[:150])
    assert r.status_code!=500
    if r.status_code==200:
        r2=filled.delete({"a.parquet":[1]}, read_version=1, predicate="id = 1")
        print("DEL",r2.status_code,r2.text[:200]); assert r2.status_code!=500
        p=filled.client.post(filled.url+"/plan",json={"predicate":"id = 1"}); print("PLAN",p.status_code,p.text[:100]); assert p.status_code!=500
        r3=filled.append(add|{"path":"n9.parquet"} if False else filled.write_file("n3.parquet",[1])); assert r3.status_code==200
        h=filled.client.get(filled.url+"/health"); assert h.status_code!=500,h.text
        c=filled.client.post(filled.url+"/checkpoint",json={}); print("CKP",c.status_code,c.text[:200]); assert c.status_code!=500
BAD="@@BAD@@"
def test_create(client, tmp_path):
    for name, extra in (("a",{"description":BAD}),("b",{"properties":{"x.y":BAD}}),("c",{"schema":{"type":"struct","fields":[{"name":"id","type":"long","nullable":True,"metadata":{"comment":BAD}}]}}),("d",{"schema":{"type":"struct","fields":[{"name":"i"+BAD,"type":"long","nullable":True,"metadata":{}}]}})):
        body={"location":str(tmp_path/name),"name":name,"schema":{"type":"struct","fields":[{"name":"id","type":"long","nullable":True,"metadata":{}}]}}|extra
        r=client.post("/v1/tables",content=json.dumps(body).replace(BAD,"\\ud800"),headers={"Content-Type":"application/json"})
        print("RES",name,r.status_code,r.text[:300])
        r=client.get(f"/v1/tables/{name}/snapshot"); print("RES",r.status_code,r.text[:100])
def test_alter(filled):
    for ch in ({"change":"set-properties","properties":{"x.y":BAD}},{"change":"set-comment","comment":BAD},{"change":"add-columns","columns":[{"column":"q"+BAD,"type":"long"}]},{"change":"add-columns","columns":[{"column":"q","type":"long","comment":BAD}]},{"change":"add-constraint","name":"x","expression":"name <> '%s'"%BAD},{"change":"rename-column","column":"name","name":"x"+BAD}):
        body={"changes":[ch]}
        r=filled.client.post(filled.url+"/alter",content=json.dumps(body).replace(BAD,"\\ud800"),headers={"Content-Type":"application/json"})
        print("RES",r.status_code,r.text[:300])
        r=filled.client.get(filled.url+"/snapshot"); print("RES",r.status_code,r.text[:50])
def test_inner_stats(filled):
    add = filled.write_file("n1.parquet", [1,2])
    add["stats"]='{"numRecords":2,"minValues":{"id":1,"name":"\\ud800"},"maxValues":{"id":2,"name":"\\udfff"},"nullCount":{"id":0}}'
    r=filled.append(add); print("RES",r.status_code,r.text[:100]); assert r.status_code==200
    for p in (None,"name = 'x'","name > 'a'"):
        r=filled.client.post(filled.url+"/plan",json={"predicate":p}); assert r.status_code==200,r.text
    r=filled.delete({"n1.parquet":[0]}); assert r.status_code==200,r.text
    r=filled.client.post(filled.url+"/checkpoint",json={}); assert r.status_code==200,r.text
    r=filled.append(filled.write_file("n2.parquet",[3])); assert r.status_code==200,r.text
    r=filled.client.post(filled.url+"/plan",json={"predicate":"name='x'"}); assert r.status_code==200,r.text
@pytest.mark.parametrize("f,v",[("size",2**63),("size",-1),("modificationTime",2**63),("modificationTime",-2**63-1)])
def test_ints(filled,f,v):
    add = filled.write_file("n1.parquet", [1,2]); add[f]=v
    r=filled.append(add); print("RES",f,v,r.status_code,r.text[:200]); assert r.status_code!=500
    r=filled.client.get(filled.url+"/snapshot"); assert r.status_code==200,r.text
@pytest.mark.parametrize("v",[2**63,-1,2**63-1])
def test_app(filled,v):
    add = filled.write_file("n1.parquet", [1,2])
    r=filled.append(add,app_transaction={"app-id":"x","version":v}); print("RES",v,r.status_code,r.text[:200]); assert r.status_code!=500
    r=filled.client.get(filled.url+"/snapshot"); assert r.status_code==200,r.text
