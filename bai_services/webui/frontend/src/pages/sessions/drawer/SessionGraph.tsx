import { Alert, Skeleton, theme } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../../components/ErrorNotice';
import { ScrollArea } from '../../../components/ScrollArea';
import { graphQuery } from '../../../data/sessions/sessions';
import { layOut, type Placed } from './graphLayout';
import { readSessionsSearch } from '../search';
import { replacesData } from '../../../data/connection';

const NODE = { width: 150, height: 44 };
const STEP = { x: 200, y: 60 };

interface Node {
  id: string;
  name: string;
  status: string;
  depends_on: string[];
}

/** Graph of the sessions connected to a session by dependencies, directly or indirectly. */
export function SessionGraph({ id }: { id: string }) {
  const { t } = useTranslation();
  const { data: graph, error, refetch } = useQuery(graphQuery(id));
  if (replacesData(error, graph)) {
    return <ErrorNotice error={error} onRetry={() => void refetch()} />;
  }
  if (!graph) {
    return <Skeleton active />;
  }
  if (graph.items.length < 2) {
    return t('sessions.no-dependencies');
  }
  return (
    <>
      {!graph.is_complete && (
        <Alert type="info" showIcon title={t('sessions.graph-cut')} style={{ marginBottom: 8 }} />
      )}
      <ScrollArea label={t('sessions.dependencies')}>
        <Drawing current={id} nodes={layOut(graph.items)} />
      </ScrollArea>
    </>
  );
}

function Drawing({ current, nodes }: { current: string; nodes: Placed<Node>[] }) {
  const { token } = theme.useToken();
  const width = Math.max(...nodes.map(({ column }) => column)) * STEP.x + NODE.width + 2;
  const height = Math.max(...nodes.map(({ row }) => row)) * STEP.y + NODE.height + 2;
  const byId = new Map(nodes.map(node => [node.item.id, node]));
  const lines = nodes.flatMap(to =>
    to.item.depends_on.flatMap(id => {
      const from = byId.get(id);
      return from ? [{ key: `${id} ${to.item.id}`, path: pathOf(from, to) }] : [];
    })
  );
  return (
    <svg width={width} height={height} style={{ display: 'block' }}>
      {lines.map(({ key, path }) => (
        <path key={key} d={path} fill="none" stroke={token.colorTextTertiary} />
      ))}
      {nodes.map(node => (
        <GraphNode key={node.item.id} node={node} isCurrent={node.item.id === current} />
      ))}
    </svg>
  );
}

function pathOf(from: Placed<Node>, to: Placed<Node>): string {
  const [x1, y1] = [from.column * STEP.x + NODE.width, from.row * STEP.y + NODE.height / 2];
  const [x2, y2] = [to.column * STEP.x, to.row * STEP.y + NODE.height / 2];
  const middle = (x1 + x2) / 2;
  return `M${x1},${y1} C${middle},${y1} ${middle},${y2} ${x2},${y2}`;
}

function GraphNode({ node, isCurrent }: { node: Placed<Node>; isCurrent: boolean }) {
  const { t } = useTranslation();
  const { token } = theme.useToken();
  const { id, name, status } = node.item;
  return (
    <foreignObject
      x={node.column * STEP.x}
      y={node.row * STEP.y}
      width={NODE.width + 2}
      height={NODE.height + 2}
    >
      <Link
        to="/sessions"
        search={old => readSessionsSearch({ ...old, session: id })}
        aria-current={isCurrent || undefined}
        className="bai-graph-node"
        style={{
          borderColor: isCurrent ? token.colorPrimary : token.colorBorder,
          background: token.colorBgContainer,
          color: token.colorText
        }}
      >
        <span>{name}</span>
        <small>{t(`status.${status}`)}</small>
      </Link>
    </foreignObject>
  );
}
