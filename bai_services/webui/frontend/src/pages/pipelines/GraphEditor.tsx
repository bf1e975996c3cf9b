import { useEffect, useMemo, useRef, useState, type KeyboardEvent } from 'react';
import {
  Background,
  Controls,
  ReactFlow,
  useReactFlow,
  ReactFlowProvider,
  type Edge,
  type EdgeChange,
  type NodeChange
} from '@xyflow/react';
import '@xyflow/react/dist/base.css';
import { Button, Flex, Select, Space, theme } from 'antd';
import { useTranslation } from 'react-i18next';
import { useThemeMode } from '../../app/theme';
import { NODE, positionsOf, type GraphTask } from './layout';
import { makesCycle } from './pipelineText';
import { NODE_TYPES, type TaskNode } from './TaskGraph';

const KINDS = ['command', 'notebook', 'approval', 'pipeline'] as const;
// Maximum number of frames to wait for a new task, which is hidden until it is measured.
const MAX_FOCUS_FRAMES = 60;
// The dots of the background take a quarter of the time of a frame. In a large graph, they are
// smaller than a pixel.
const MAX_DOTTED_TASKS = 100;
const DELETE_KEYS = ['Delete', 'Backspace'];

/** Positions of tasks that the user has moved, by name. */
export type Positions = Readonly<Record<string, { x: number; y: number }>>;

interface GraphEditorProps {
  tasks: readonly GraphTask[];
  positions: Positions;
  isDisabled: boolean;
  /** Add a task and return its name. */
  onAdd: (kind: string, need: string | undefined) => string | undefined;
  onRemove: (names: readonly string[]) => void;
  onConnect: (source: string, target: string) => void;
  onDisconnect: (edges: readonly { source: string; target: string }[]) => void;
  onMove: (positions: Positions) => void;
  /** Undefined: there is nothing to undo or redo. */
  onUndo: (() => void) | undefined;
  onRedo: (() => void) | undefined;
}

/** The graph of a pipeline, which is changed by mouse or keyboard. */
export function GraphEditor(props: GraphEditorProps) {
  return (
    <ReactFlowProvider>
      <Graph {...props} />
    </ReactFlowProvider>
  );
}

function Graph(props: GraphEditorProps) {
  const { tasks, positions, isDisabled, onAdd, onRemove, onConnect, onDisconnect, onMove } = props;
  const { t } = useTranslation();
  const { isDark } = useThemeMode();
  const { token } = theme.useToken();
  const { fitView } = useReactFlow();
  const box = useRef<HTMLDivElement>(null);
  const [kind, setKind] = useState<string>('command');
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [dragged, setDragged] = useState<Positions>({});
  // The task from which a connection begins.
  const [source, setSource] = useState<string>();
  // The task that gets the focus when it is in the graph.
  const next = useRef<string>(undefined);
  const arranged = useMemo(() => positionsOf(tasks), [tasks]);
  const positionOf = (name: string) =>
    dragged[name] ?? positions[name] ?? arranged.get(name) ?? { x: 0, y: 0 };
  const nodes: TaskNode[] = tasks.map(task => ({
    id: task.name,
    type: 'task',
    position: positionOf(task.name),
    data: { task, isEditable: true },
    selected: selected.has(task.name),
    ariaLabel: t('pipelines.node', { name: task.name, needs: task.needs.join(', ') || '–' }),
    ...NODE
  }));
  const edges: Edge[] = tasks.flatMap(({ name, needs }) =>
    needs.map(need => {
      const id = `${need}→${name}`;
      const isSelected = selected.has(id);
      return {
        id,
        source: need,
        target: name,
        selected: isSelected,
        style: { stroke: isSelected ? token.colorPrimary : token.colorTextTertiary }
      };
    })
  );
  useEffect(() => {
    const name = next.current;
    if (name !== undefined && tasks.some(task => task.name === name)) {
      next.current = undefined;
      // Fit the view first, because a task outside of it is not in the DOM.
      void fitView({ maxZoom: 1 });
      focusSoon(box.current, name, MAX_FOCUS_FRAMES);
    }
  }, [tasks, fitView]);

  const select = (changes: readonly (NodeChange<TaskNode> | EdgeChange)[]) => {
    const found = changes.filter(change => change.type === 'select');
    if (found.length > 0) {
      setSelected(old => {
        const after = new Set(old);
        for (const change of found) {
          if (change.selected) {
            after.add(change.id);
          } else {
            after.delete(change.id);
          }
        }
        return after;
      });
    }
  };
  const changeNodes = (changes: NodeChange<TaskNode>[]) => {
    select(changes);
    const moves = changes.filter(change => change.type === 'position' && change.position);
    if (moves.length === 0) {
      return;
    }
    const moved = { ...dragged };
    let isDragging = false;
    for (const move of moves) {
      if (move.type === 'position' && move.position) {
        moved[move.id] = move.position;
        isDragging ||= move.dragging === true;
      }
    }
    // Undo restores the position before the whole movement.
    if (isDragging) {
      setDragged(moved);
    } else {
      setDragged({});
      onMove({ ...positions, ...moved });
    }
  };
  const connect = (from: string, to: string) => {
    setSource(undefined);
    if (!isDisabled && !makesCycle(tasks, from, to)) {
      onConnect(from, to);
    }
  };
  const first = tasks.find(({ name }) => selected.has(name))?.name;
  const add = (need: string | undefined) => {
    if (isDisabled) {
      return;
    }
    const name = onAdd(kind, need);
    if (name !== undefined) {
      setSelected(new Set([name]));
      next.current = name;
    }
  };
  const remove = () => {
    const names = tasks.map(({ name }) => name).filter(name => selected.has(name));
    if (names.length > 0) {
      onRemove(names);
    } else {
      onDisconnect(edges.filter(({ id }) => selected.has(id)));
    }
    setSelected(new Set());
  };
  const arrange = () => {
    onMove({});
    void fitView({ maxZoom: 1 });
  };
  const press = (event: KeyboardEvent<HTMLDivElement>) => {
    const focused = (event.target as HTMLElement).closest<HTMLElement>('.react-flow__node');
    const name = focused?.dataset['id'];
    const isCommand = event.ctrlKey || event.metaKey;
    const key = event.key.toLowerCase();
    if (isCommand && (key === 'z' || key === 'y')) {
      (key === 'y' || event.shiftKey ? props.onRedo : props.onUndo)?.();
    } else if (isCommand || event.altKey) {
      return;
    } else if (key === 'a') {
      add(name);
    } else if (key === 'l') {
      arrange();
    } else if (key === 'c' && name !== undefined) {
      if (source === undefined) {
        setSource(name);
      } else {
        connect(source, name);
      }
    } else if (key === 'escape') {
      setSource(undefined);
      return;
    } else {
      return;
    }
    event.preventDefault();
  };
  return (
    <Flex vertical gap="small" style={{ height: '100%' }}>
      <Flex gap="small" wrap>
        <Space.Compact>
          <Select
            aria-label={t('pipelines.kind')}
            value={kind}
            onChange={setKind}
            disabled={isDisabled}
            style={{ minWidth: 130 }}
            options={KINDS.map(value => ({ value, label: t(`pipelines.kind-${value}`) }))}
          />
          <Button onClick={() => add(first)} disabled={isDisabled}>
            {t('pipelines.add-task')}
          </Button>
        </Space.Compact>
        <Button onClick={remove} disabled={isDisabled || selected.size === 0}>
          {t('pipelines.remove')}
        </Button>
        <Button onClick={() => props.onUndo?.()} disabled={!props.onUndo}>
          {t('pipelines.undo')}
        </Button>
        <Button onClick={() => props.onRedo?.()} disabled={!props.onRedo}>
          {t('pipelines.redo')}
        </Button>
        <Button onClick={arrange}>{t('pipelines.arrange')}</Button>
      </Flex>
      <span role="status" style={{ color: token.colorTextSecondary }}>
        {source === undefined
          ? t('pipelines.graph-keys')
          : t('pipelines.connect-from', { name: source })}
      </span>
      <div
        ref={box}
        role="group"
        aria-label={t('pipelines.graph')}
        onKeyDown={press}
        style={{
          flex: 1,
          minHeight: 240,
          border: `1px solid ${token.colorBorderSecondary}`,
          borderRadius: 8
        }}
      >
        <ReactFlow
          nodes={nodes}
          edges={edges}
          nodeTypes={NODE_TYPES}
          onNodesChange={changeNodes}
          onEdgesChange={select}
          onConnect={({ source: from, target: to }) => connect(from, to)}
          isValidConnection={({ source: from, target: to }) => !makesCycle(tasks, from, to)}
          onNodeClick={(_, { id }) => source !== undefined && connect(source, id)}
          onDelete={remove}
          deleteKeyCode={isDisabled ? null : DELETE_KEYS}
          nodesConnectable={!isDisabled}
          colorMode={isDark ? 'dark' : 'light'}
          onlyRenderVisibleElements
          fitView
          fitViewOptions={{ maxZoom: 1 }}
          minZoom={0.05}
          proOptions={{ hideAttribution: true }}
        >
          {tasks.length <= MAX_DOTTED_TASKS && <Background />}
          <Controls showInteractive={false} />
        </ReactFlow>
      </div>
    </Flex>
  );
}

function focusSoon(box: HTMLElement | null, name: string, frames: number) {
  const node = box?.querySelector<HTMLElement>(`[data-id="${CSS.escape(name)}"]`);
  node?.focus();
  if (frames > 0 && (!node || document.activeElement !== node)) {
    requestAnimationFrame(() => focusSoon(box, name, frames - 1));
  }
}
