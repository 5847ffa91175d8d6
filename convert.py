"""Results of before 915170c (samples in asv's file, probes in .ndjson) in the format of today: python convert.py FROM TO"""
import json,gzip,sys,itertools
from pathlib import Path
src,dst=map(Path,sys.argv[1:3]); dst.mkdir(parents=True,exist_ok=True)
for nd in sorted(src.glob('*.json')):
    if nd.name=='machine.json':
        (dst/nd.name).write_bytes(nd.read_bytes()); continue
    d=json.load(open(nd)); cols=d['result_columns']
    rows={n:dict(itertools.zip_longest(cols,v)) for n,v in d['results'].items()}
    lines=[]
    log=nd.with_suffix('.ndjson')
    if log.exists():
        for l in log.read_text().splitlines():
            o=json.loads(l)
            if 'pulses' in o: o={('probes' if k=='pulses' else k):v for k,v in o.items()}
            if 'seconds' in o or 'values' in o:
                o['version']=rows[o['benchmark']]['version']
                lines.append(o)
    run=json.loads(nd.with_suffix('.jsonl').read_text().splitlines()[-1])['started'] if nd.with_suffix('.jsonl').exists() else ''
    for name,row in rows.items():
        if '.track_' not in name: continue
        every=list(itertools.product(*row['params']))
        res=row['result'] or []; sam=row.get('samples') or [None]*len(every)
        for ps,v,x in itertools.zip_longest(every,res,sam):
            if v is None or v!=v: continue
            lines.append(dict(run=run,benchmark=name,params=list(ps),at=0.0,values=x or [v],version=row['version'],round=0))
    print(nd.name,len(lines),sum('values' in x for x in lines))
    for row in d['results'].values():
        for name in ('samples','profile'):
            if name in cols and len(row)>cols.index(name): row[cols.index(name)]=None
    (dst/nd.name).write_text(json.dumps(d,separators=(',',':')))
    if lines:
        (dst/nd.with_suffix('.jsonl.gz').name).write_bytes(gzip.compress('\n'.join(json.dumps(x) for x in lines).encode()+b'\n',mtime=0))
    rec=nd.with_suffix('.jsonl')
    if rec.exists():
        out=[]
        for l in rec.read_text().splitlines():
            o=json.loads(l)
            o['quiet']=o.pop('calm',None); o['baselines']=o.pop('floors',{}); o['noisy_cells']=list(o.pop('disturbed_cells',{})); o.pop('disturbed',None)
            out.append(json.dumps(o))
        (dst/rec.name).write_text('\n'.join(out)+'\n')
