import { useMemo, type CSSProperties } from 'react';
import {
  Background,
  Controls,
  Handle,
  Position,
  ReactFlow,
  type Edge,
  type Node,
  type NodeProps
} from '@xyflow/react';
import '@xyflow/react/dist/base.css';
import { Grid, theme } from 'antd';
import { useTranslation } from 'react-i18next';
import { useThemeMode } from '../../app/theme';
import { UserText } from '../../components/UserText';
import { NODE, positionsOf, shortName, shownEdges, type GraphTask } from './layout';
import { Status } from './Status';

/**
 * `isContainer`: the box contains the tasks of a sub-pipeline. `isVertical`: its dependencies are
 * above it, not to the left.
 */
export type TaskNode = Node<
  { task: GraphTask; isEditable?: boolean; isContainer?: boolean; isVertical?: boolean },
  'task'
>;

export const NODE_TYPES = { task: TaskBox };

interface TaskGraphProps {
  tasks: readonly GraphTask[];
  height: number | string;
  selected?: string | undefined;
  onSelect?: (task: string) => void;
}

/** The graph of the tasks of a pipeline, or of a run with their states. */
export function TaskGraph({ tasks, height, selected, onSelect }: TaskGraphProps) {
  const { t } = useTranslation();
  const { isDark } = useThemeMode();
  const { token } = theme.useToken();
  // From left to right, the boxes would be too small to read on a narrow screen.
  const isVertical = Grid.useBreakpoint().md === false;
  // Compute the positions only from names and dependencies: a change of states moves no node.
  const shape = JSON.stringify(tasks.map(({ name, needs }) => [name, needs]));
  const positions = useMemo(
    () =>
      positionsOf(
        (JSON.parse(shape) as [string, string[]][]).map(([name, needs]) => ({
          name,
          needs,
          kind: ''
        })),
        isVertical
      ),
    [shape, isVertical]
  );
  const containers = new Set([...positions.values()].map(({ parent }) => parent));
  const running = new Set(tasks.filter(isRunning).map(({ name }) => name));
  const nodes = tasks
    .map((task): TaskNode => {
      const { x, y, width, height, parent } = positions.get(task.name) ?? { x: 0, y: 0, ...NODE };
      return {
        id: task.name,
        type: 'task',
        position: { x, y },
        data: { task, isContainer: containers.has(task.name), isVertical },
        selected: task.name === selected,
        ...(parent && { parentId: parent }),
        width,
        height
      };
    })
    // React Flow requires a containing node before its nodes.
    .sort((one, other) => depthOf(one) - depthOf(other));
  const edges: Edge[] = shownEdges(tasks).map(({ source, target }) => ({
    id: `${source}→${target}`,
    source,
    target,
    animated: running.has(target),
    style: { stroke: token.colorTextTertiary }
  }));
  return (
    <div
      role="group"
      aria-label={t('pipelines.graph')}
      style={{ height, border: `1px solid ${token.colorBorderSecondary}`, borderRadius: 8 }}
    >
      <ReactFlow
        key={`${shape} ${isVertical}`}
        nodes={nodes}
        edges={edges}
        nodeTypes={NODE_TYPES}
        colorMode={isDark ? 'dark' : 'light'}
        fitView
        fitViewOptions={{ maxZoom: 1 }}
        minZoom={0.1}
        nodesDraggable={false}
        nodesConnectable={false}
        onNodeClick={(_, node) => onSelect?.(node.id)}
        proOptions={{ hideAttribution: true }}
      >
        <Background />
        <Controls showInteractive={false} />
      </ReactFlow>
    </div>
  );
}

const isRunning = ({ status }: GraphTask) => status === 'running';
const depthOf = ({ id }: TaskNode) => id.split('/').length;

function TaskBox({ data, selected, width, height }: NodeProps<TaskNode>) {
  const { task, isEditable, isContainer, isVertical } = data;
  const { t } = useTranslation();
  const { token } = theme.useToken();
  const handle: CSSProperties = isEditable
    ? { width: 10, height: 10, background: token.colorPrimary }
    : { visibility: 'hidden' };
  return (
    <div
      style={{
        width: width ?? NODE.width,
        height: height ?? NODE.height,
        boxSizing: 'border-box',
        padding: '6px 10px',
        borderRadius: 8,
        background: isContainer ? token.colorFillQuaternary : token.colorBgContainer,
        color: token.colorText,
        border: `1px solid ${selected ? token.colorPrimary : token.colorBorder}`,
        overflow: 'hidden',
        whiteSpace: 'nowrap',
        textOverflow: 'ellipsis'
      }}
    >
      <Handle type="target" position={isVertical ? Position.Top : Position.Left} style={handle} />
      <strong>
        <UserText text={shortName(task.name)} />
      </strong>
      <div style={{ fontSize: 12 }}>
        {task.status ? (
          <Status status={task.status} />
        ) : (
          t(`pipelines.kind-${task.kind}`, task.kind)
        )}
        {task.count && ` ${task.count.ended}/${task.count.total}`}
        {task.isCached && ` ${t('pipeline-runs.cached')}`}
      </div>
      <Handle
        type="source"
        position={isVertical ? Position.Bottom : Position.Right}
        style={handle}
      />
    </div>
  );
}
