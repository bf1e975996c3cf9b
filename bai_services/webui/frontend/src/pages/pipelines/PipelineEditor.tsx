import { useCallback, useEffect, useRef, useState } from 'react';
import type { EditorView } from '@codemirror/view';
import { Alert, App, Button, Drawer, Flex, Popconfirm, Select, Skeleton } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { reasonText } from '../../i18n/reasonText';
import { ErrorNotice } from '../../components/ErrorNotice';
import { ApiError } from '../../data/client';
import { meQuery } from '../../data/accounts/me';
import {
  checkQuery,
  pipelineQuery,
  templateQuery,
  useDeletePipeline,
  useSavePipeline,
  useSaveTemplate,
  type Pipeline
} from '../../data/pipelines/pipelines';
import { TextEditor } from '../data/preview/TextEditor';
import type { GraphTask } from './layout';
import { GraphEditor, type Positions } from './GraphEditor';
import { Conversions } from './Conversions';
import { addTask, connectTasks, disconnectTasks, isEditable, removeTasks } from './pipelineText';
import { TaskGraph } from './TaskGraph';
import { useHistory } from './useHistory';

const EXAMPLE = `version: 1
name: example
parameters:
- {name: epochs, type: integer, default: 3}
defaults:
  resources: {cpu: 1, mem: 1g}
tasks:
- name: prepare
  command: echo data > data.txt
  outputs: [data.txt]
- name: train
  needs: [prepare]
  for_each: {values: [small, large], max_parallel: 2}
  command: echo "$PIPELINE_ITEM $PARAM_EPOCHS" > "model-$PIPELINE_ITEM.txt"
- name: check
  kind: approval
  needs: [train]
- name: report
  needs: [check]
  command: cat model-*.txt
`;
const FILE = 'pipeline.yaml';
// A long text must not make the graph as high: its tasks would be below the window.
const PANE_HEIGHT = 'max(320px, calc(100vh - 190px))';
const CHECK_MILLIS = 400;
const NO_POSITIONS: Positions = {};

interface Version {
  text: string;
  positions: Positions;
}

interface PipelineEditorProps {
  isOpen: boolean;
  /** Undefined for a new pipeline. */
  pipelineId: string | undefined;
  /** The template of a new pipeline; undefined: an example. */
  templateId: string | undefined;
  isReadOnly: boolean;
  onClose: () => void;
}

/** Drawer with the YAML of a pipeline, checked while the user types, and its graph. */
export function PipelineEditor(props: PipelineEditorProps) {
  const { isOpen, pipelineId, templateId, isReadOnly, onClose } = props;
  const { t } = useTranslation();
  const { data, error } = useQuery({
    ...pipelineQuery(pipelineId ?? ''),
    enabled: isOpen && pipelineId !== undefined
  });
  const pipeline = data?.id === pipelineId ? data : undefined;
  const template = useQuery({
    ...templateQuery(templateId ?? ''),
    enabled: isOpen && templateId !== undefined
  });
  const isReady =
    (pipelineId === undefined || pipeline !== undefined) &&
    (templateId === undefined || template.data !== undefined);
  const problem = error ?? template.error;
  return (
    <Drawer
      open={isOpen}
      onClose={onClose}
      size="100%"
      destroyOnHidden
      title={pipeline ? pipeline.name : t('pipelines.create')}
    >
      {problem && <ErrorNotice error={problem} />}
      {!isReady && !problem && <Skeleton active />}
      {isReady && isOpen && (
        <Editor
          key={pipelineId ?? templateId ?? ''}
          pipeline={pipeline}
          initial={pipeline?.definition ?? template.data?.definition ?? EXAMPLE}
          isReadOnly={isReadOnly}
          onClose={onClose}
        />
      )}
    </Drawer>
  );
}

interface EditorProps {
  pipeline: Pipeline | undefined;
  initial: string;
  isReadOnly: boolean;
  onClose: () => void;
}

function Editor({ pipeline, initial, isReadOnly, onClose }: EditorProps) {
  const { t, i18n } = useTranslation();
  const { message } = App.useApp();
  const { data: me } = useQuery(meQuery);
  const editor = useRef<EditorView | null>(null);
  // The initial text: an update of the pipeline must not replace the user's changes.
  const [first] = useState(initial);
  const [text, setText] = useState(first);
  // The text that is checked and shown as a graph, with the positions of moved tasks.
  const history = useHistory<Version>({ text: first, positions: NO_POSITIONS });
  const { present, set } = history;
  const checked = present.text;
  const edited = useCallback(() => setText(editor.current?.state.doc.toString() ?? ''), []);
  useEffect(() => {
    const timer = setTimeout(() => {
      if (text !== present.text) {
        set({ ...present, text });
      }
    }, CHECK_MILLIS);
    return () => clearTimeout(timer);
  }, [text, present, set]);
  /** Show a version in the editor of the text. */
  const show = (version: Version | undefined) => {
    const view = editor.current;
    if (view && version && view.state.doc.toString() !== version.text) {
      view.dispatch({
        changes: { from: 0, to: view.state.doc.length, insert: version.text }
      });
    }
  };
  /** Apply a change of the graph to the text; return its result. */
  const change = <T,>(changed: { text: string; result: T } | undefined) => {
    if (changed && changed.text !== text) {
      const version = { ...present, text: changed.text };
      history.set(version);
      show(version);
    }
    return changed?.result;
  };
  const check = useQuery({ ...checkQuery(checked), enabled: !isReadOnly });
  // Name of the project that owns a new pipeline; empty: the user owns it.
  const [project, setProject] = useState('');
  const save = useSavePipeline(pipeline, project);
  const saveTemplate = useSaveTemplate(project);
  const remove = useDeletePipeline();
  const [tasks, setTasks] = useState<GraphTask[]>([]);
  if (check.data?.is_valid && check.data.tasks !== tasks) {
    setTasks(check.data.tasks);
  }
  const canWrite = pipeline?.can_write ?? true;
  const isAdmin = me?.role === 'admin' || me?.role === 'superadmin';
  const submit = () =>
    save.mutate(text, {
      onSuccess: made => {
        void message.success(t('pipelines.saved', { name: made.name }));
        onClose();
      }
    });
  const submitTemplate = () =>
    saveTemplate.mutate(text, {
      onSuccess: made => void message.success(t('pipeline-templates.saved', { name: made.name })),
      onError: problem => void message.error(problem.message)
    });
  const error = check.error ?? save.error ?? remove.error;
  const isLineProblem = error instanceof ApiError && error === save.error && !check.data?.is_valid;
  return (
    <Flex vertical gap="small" style={{ height: '100%' }}>
      <Flex gap="small" wrap align="center">
        {!isReadOnly && canWrite && (
          <Button
            type="primary"
            onClick={submit}
            loading={save.isPending}
            disabled={check.data?.is_valid === false}
          >
            {t('pipelines.save')}
          </Button>
        )}
        {!pipeline && !isReadOnly && isAdmin && (
          <Select
            aria-label={t('pipelines.owner')}
            value={project}
            onChange={setProject}
            style={{ minWidth: 200 }}
            options={[
              { value: '', label: t('pipelines.owner-me') },
              ...me.projects.map(({ name }) => ({
                value: name,
                label: t('pipelines.owner-project', { name })
              }))
            ]}
          />
        )}
        {!isReadOnly && (
          <Button
            onClick={submitTemplate}
            loading={saveTemplate.isPending}
            disabled={check.data?.is_valid === false}
          >
            {t('pipeline-templates.save')}
          </Button>
        )}
        <Conversions
          text={text}
          name={pipeline?.name ?? check.data?.name ?? ''}
          onImport={
            !isReadOnly && canWrite
              ? found => {
                  const version = { text: found, positions: NO_POSITIONS };
                  history.set(version);
                  show(version);
                }
              : undefined
          }
        />
        {pipeline && !isReadOnly && (canWrite || isAdmin) && (
          <Popconfirm
            title={t('pipelines.delete-question', { name: pipeline.name })}
            okText={t('pipelines.delete')}
            cancelText={t('entities.cancel')}
            onConfirm={() => remove.mutate(pipeline.id, { onSuccess: onClose })}
          >
            <Button danger loading={remove.isPending}>
              {t('pipelines.delete')}
            </Button>
          </Popconfirm>
        )}
      </Flex>
      {error && !isLineProblem && <ErrorNotice error={error} />}
      {check.data?.is_valid === false && (
        <Alert
          type="error"
          showIcon
          title={reasonText(i18n, { message: check.data.problem, coded: check.data.problem_coded })}
          role="status"
        />
      )}
      <Flex gap="middle" wrap style={{ flex: 1, minHeight: 0 }}>
        <div style={{ flex: '1 1 380px', height: PANE_HEIGHT, overflow: 'auto' }}>
          <TextEditor
            name={FILE}
            text={first}
            isReadOnly={isReadOnly || !canWrite}
            editorRef={editor}
            onEdit={edited}
          />
        </div>
        <div style={{ flex: '1 1 380px', height: PANE_HEIGHT }}>
          {isReadOnly || !canWrite ? (
            <TaskGraph tasks={tasks} height="100%" />
          ) : (
            <GraphEditor
              tasks={tasks}
              positions={present.positions}
              isDisabled={!isEditable(text)}
              onAdd={(kind, need) => change(addTask(text, kind, need))}
              onRemove={names => change(removeTasks(text, names))}
              onConnect={(source, target) => change(connectTasks(text, source, target))}
              onDisconnect={edges => change(disconnectTasks(text, edges))}
              onMove={positions => history.set({ ...present, positions })}
              onUndo={history.canUndo ? () => show(history.undo()) : undefined}
              onRedo={history.canRedo ? () => show(history.redo()) : undefined}
            />
          )}
        </div>
      </Flex>
    </Flex>
  );
}
